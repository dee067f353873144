package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
)

// configFlags are the flags of `stet configs`, those of kafka-configs.sh.
type configFlags struct {
	bootstrap, commandConfig, entityType, entityName, add, remove string
	entityDefault, alter, describe, all                           bool
	topic, broker, mirror                                         string
}

func configsCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "configs",
		Short: "Show and change settings of topics, brokers and mirrors",
		Long:  "Show and change settings of topics, brokers and mirrors.",
		Example: "  stet configs --bootstrap-server 127.0.0.1:9092 --alter --entity-type mirrors --entity-name prod --add-config fetch.wait.max.ms=200\n" +
			"  stet configs --bootstrap-server 127.0.0.1:9092 --describe --entity-type topics --entity-name orders",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.bootstrap, "bootstrap-server", "", "HOST:PORT of a broker, several separated by commas")
	fl.StringVar(&f.commandConfig, "command-config", "", "properties file with client settings")
	fl.BoolVar(&f.alter, "alter", false, "change settings")
	fl.BoolVar(&f.describe, "describe", false, "show settings")
	fl.BoolVar(&f.all, "all", false, "show defaults too (with --describe)")
	fl.StringVar(&f.entityType, "entity-type", "", "topics, brokers or mirrors")
	fl.StringVar(&f.entityName, "entity-name", "", "topic, broker id or mirror")
	fl.BoolVar(&f.entityDefault, "entity-default", false, "the default of all brokers (with --entity-type brokers)")
	fl.StringVar(&f.topic, "topic", "", "the same as --entity-type topics --entity-name")
	fl.StringVar(&f.broker, "broker", "", "the same as --entity-type brokers --entity-name")
	fl.StringVar(&f.mirror, "mirror", "", "the same as --entity-type mirrors --entity-name")
	fl.StringVar(&f.add, "add-config", "", "KEY=VALUE,... ; a value with commas stands in [brackets]")
	fl.StringVar(&f.remove, "delete-config", "", "KEY,...")
	return cmd
}

// entity types: what the wire calls them and how messages name them.
var entityTypes = map[string]struct {
	wire kmsg.ConfigResourceType
	word string
}{
	"topics":  {kmsg.ConfigResourceTypeTopic, "topic"},
	"brokers": {kmsg.ConfigResourceTypeBroker, "broker"},
	"mirrors": {mirrormsg.ConfigResourceMirror, "mirror"},
}

func (f *configFlags) run(cmd *cobra.Command) error {
	for _, short := range []struct{ typ, name string }{{"topics", f.topic}, {"brokers", f.broker}, {"mirrors", f.mirror}} {
		if short.name != "" {
			if f.entityType != "" {
				return usagef("name one entity, not several")
			}
			f.entityType, f.entityName = short.typ, short.name
		}
	}
	if f.alter == f.describe {
		return usagef("configs needs exactly one of --alter and --describe")
	}
	et, ok := entityTypes[f.entityType]
	if !ok {
		return usagef("--entity-type %q; allowed are topics, brokers and mirrors", f.entityType)
	}
	if f.entityDefault && f.entityType != "brokers" {
		return usagef("--entity-default goes with --entity-type brokers")
	}
	if f.alter && f.entityName == "" && !f.entityDefault {
		return usagef("--alter needs --entity-name")
	}
	var ops []kmsg.IncrementalAlterConfigsRequestResourceConfig
	if f.alter {
		var err error
		if ops, err = f.operations(); err != nil {
			return err
		}
	}
	cl, err := connect(cmd.Context(), f.bootstrap, f.commandConfig)
	if err != nil {
		return err
	}
	defer cl.Close()
	if f.alter {
		return f.runAlter(cmd, cl, et.wire, et.word, ops)
	}
	return f.runDescribe(cmd, cl, et.wire, et.word)
}

func (f *configFlags) operations() ([]kmsg.IncrementalAlterConfigsRequestResourceConfig, error) {
	add, err := parseAddConfig(f.add)
	if err != nil {
		return nil, err
	}
	var ops []kmsg.IncrementalAlterConfigsRequestResourceConfig
	for _, kv := range add {
		op := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		op.Name, op.Value, op.Op = kv[0], &kv[1], kmsg.IncrementalAlterConfigOpSet
		ops = append(ops, op)
	}
	for _, k := range strings.Split(f.remove, ",") {
		if k = strings.TrimSpace(k); k != "" {
			op := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			op.Name, op.Op = k, kmsg.IncrementalAlterConfigOpDelete
			ops = append(ops, op)
		}
	}
	if len(ops) == 0 {
		return nil, usagef("--alter needs --add-config or --delete-config")
	}
	return ops, nil
}

// parseAddConfig reads Kafka's KEY=VALUE,KEY=[V,V] form.
func parseAddConfig(s string) ([][2]string, error) {
	var out [][2]string
	for s = strings.TrimSpace(s); s != ""; {
		key, rest, ok := strings.Cut(s, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return nil, usagef("--add-config: %q is not KEY=VALUE", s)
		}
		var value string
		if strings.HasPrefix(rest, "[") {
			end := strings.Index(rest, "]")
			if end < 0 {
				return nil, usagef("--add-config: the bracket of %s is not closed", key)
			}
			value, s = rest[1:end], strings.TrimPrefix(strings.TrimSpace(rest[end+1:]), ",")
		} else {
			value, s, _ = strings.Cut(rest, ",")
		}
		out = append(out, [2]string{key, strings.TrimSpace(value)})
		s = strings.TrimSpace(s)
	}
	return out, nil
}

func (f *configFlags) runAlter(cmd *cobra.Command, cl *kgo.Client, typ kmsg.ConfigResourceType, word string, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.Configs = typ, f.entityName, ops
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(cmd.Context(), cl)
	if err != nil {
		return err
	}
	for i := range resp.Resources {
		if err := refused(resp.Resources[i].ErrorCode, resp.Resources[i].ErrorMessage); err != nil {
			return err
		}
	}
	if f.entityDefault && f.entityName == "" {
		fmt.Printf("Completed updating default config for %ss in the cluster.\n", word)
		return nil
	}
	fmt.Printf("Completed updating config for %s %s.\n", word, f.entityName)
	return nil
}

func (f *configFlags) runDescribe(cmd *cobra.Command, cl *kgo.Client, typ kmsg.ConfigResourceType, word string) error {
	names := []string{f.entityName}
	if f.entityName == "" && !f.entityDefault {
		var err error
		if names, err = f.everyName(cmd, cl); err != nil {
			return err
		}
	}
	for _, name := range names {
		req := kmsg.NewPtrDescribeConfigsRequest()
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = typ, name
		req.Resources = append(req.Resources, r)
		req.IncludeSynonyms = true
		resp, err := req.RequestWith(cmd.Context(), cl)
		if err != nil {
			return err
		}
		for i := range resp.Resources {
			res := &resp.Resources[i]
			if err := refused(res.ErrorCode, res.ErrorMessage); err != nil {
				return err // it names the entity
			}
			f.print(res, word, name)
		}
	}
	return nil
}

func (f *configFlags) print(res *kmsg.DescribeConfigsResponseResource, word, name string) {
	kind := "Dynamic"
	if f.all {
		kind = "All"
	}
	if name == "" {
		fmt.Printf("Default configs for %ss in the cluster are:\n", word)
	} else {
		fmt.Printf("%s configs for %s %s are:\n", kind, word, name)
	}
	sort.Slice(res.Configs, func(i, j int) bool { return res.Configs[i].Name < res.Configs[j].Name })
	for _, c := range res.Configs {
		switch c.Source {
		case kmsg.ConfigSourceDefaultConfig, kmsg.ConfigSourceStaticBrokerConfig:
			if !f.all {
				continue
			}
		}
		value := "null"
		if c.Value != nil {
			value = *c.Value
		}
		var synonyms []string
		for _, s := range c.ConfigSynonyms {
			v := "null"
			if s.Value != nil {
				v = *s.Value
			}
			synonyms = append(synonyms, fmt.Sprintf("%s:%s=%s", s.Source, s.Name, v))
		}
		fmt.Printf("  %s=%s sensitive=%t synonyms={%s}\n", c.Name, value, c.IsSensitive, strings.Join(synonyms, ", "))
	}
}

func (f *configFlags) everyName(cmd *cobra.Command, cl *kgo.Client) ([]string, error) {
	var names []string
	if f.entityType == "mirrors" {
		resp, err := mirrormsg.NewPtrListMirrorsRequest().RequestWith(cmd.Context(), cl)
		if err != nil {
			return nil, err
		}
		for i := range resp.Mirrors {
			names = append(names, resp.Mirrors[i].MirrorName)
		}
		return names, refused(resp.ErrorCode, resp.ErrorMessage)
	}
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(cmd.Context(), cl)
	if err != nil {
		return nil, err
	}
	if f.entityType == "brokers" {
		for _, b := range resp.Brokers {
			names = append(names, fmt.Sprint(b.NodeID))
		}
		return names, nil
	}
	for _, t := range resp.Topics {
		if t.Topic != nil {
			names = append(names, *t.Topic)
		}
	}
	sort.Strings(names)
	return names, nil
}
