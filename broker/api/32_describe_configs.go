package api

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
	"stet/broker/replica"
)

// DescribeConfigs (key 32), versions 1-4.
//
// Topics, brokers (id, or empty for the cluster-wide default), groups and
// mirrors (resource type 64). Effective values with their source and, when asked
// for, synonyms and documentation. mirror.name and mirror.start stay hidden;
// secrets are never returned.
var describeConfigs = handler{key: 32, min: 1, max: 4, serve: serveDescribeConfigs}

func serveDescribeConfigs(_ context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.DescribeConfigsRequest)
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for i := range req.Resources {
		q := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = q.ResourceType, q.ResourceName
		entries, err := a.configEntries(q.ResourceType, q.ResourceName)
		out.ErrorCode, out.ErrorMessage = code(err), message(err)
		if err == nil {
			out.Configs = describeEntries(entries, q, req)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

func (a *API) configEntries(typ kmsg.ConfigResourceType, name string) ([]configs.Entry, error) {
	img := a.Image()
	switch typ {
	case kmsg.ConfigResourceTypeTopic:
		if img.Topic(name) == nil {
			return nil, replica.Refuse(kerr.UnknownTopicOrPartition, "no topic %q", name)
		}
		return configs.TopicEntries(img.Config(meta.ResourceTopic, name), a.Levels(img)), nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return configs.DynamicDefaultEntries(img.Config(meta.ResourceBroker, "")), nil
		}
		if name != strconv.Itoa(int(a.Node)) {
			return nil, replica.Refuse(kerr.InvalidRequest, "this is broker %d; ask broker %q itself", a.Node, name)
		}
		return configs.BrokerEntries(a.Levels(img)), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		return configs.GroupEntries(img.Config(meta.ResourceGroup, name)), nil
	case mirrormsg.ConfigResourceMirror:
		if img.Mirror(name) == nil {
			return nil, mirrormsg.UnknownMirror
		}
		return configs.MirrorEntries(img.Config(meta.ResourceMirror, name)), nil
	}
	return nil, replica.Refuse(kerr.InvalidRequest, "configs of resource type %d are not served", int8(typ))
}

func describeEntries(entries []configs.Entry, q *kmsg.DescribeConfigsRequestResource, req *kmsg.DescribeConfigsRequest) []kmsg.DescribeConfigsResponseResourceConfig {
	var wanted map[string]bool
	if q.ConfigNames != nil {
		wanted = map[string]bool{}
		for _, n := range q.ConfigNames {
			wanted[n] = true
		}
	}
	out := make([]kmsg.DescribeConfigsResponseResourceConfig, 0, len(entries))
	for _, e := range entries {
		if wanted != nil && !wanted[e.Def.Name] {
			continue
		}
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value, c.Source = e.Def.Name, e.Value, kmsg.ConfigSource(e.Source)
		c.IsDefault = e.Source == configs.SourceDefault
		c.IsSensitive, c.ConfigType = e.Def.Sensitive(), kmsg.ConfigType(e.Def.Type)
		c.ReadOnly = q.ResourceType == kmsg.ConfigResourceTypeBroker && !e.Def.Dynamic
		if c.IsSensitive {
			c.Value = nil
		}
		if req.IncludeSynonyms {
			for _, s := range e.Synonyms {
				cs := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
				cs.Name, cs.Value, cs.Source = s.Name, s.Value, kmsg.ConfigSource(s.Source)
				if c.IsSensitive {
					cs.Value = nil
				}
				c.ConfigSynonyms = append(c.ConfigSynonyms, cs)
			}
		}
		if req.IncludeDocumentation {
			c.Documentation = &e.Def.Doc
		}
		out = append(out, c)
	}
	return out
}
