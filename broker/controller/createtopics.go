package controller

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
)

// CreateOpts are rights that no client has.
type CreateOpts struct {
	// Internal allows internal topics, and more partitions for a mirror topic.
	Internal bool
}

// CreateTopics answers as Apache Kafka does, and takes MirrorInfo (SPEC section 9).
// The error is that of the commit; everything else is in the response.
func (c *Controller) CreateTopics(ctx context.Context, req *kmsg.CreateTopicsRequest, opts CreateOpts) (*kmsg.CreateTopicsResponse, error) {
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *kmsg.CreateTopicsResponse) {
		return createTopics(img, &c.env, req, opts)
	})
}

func createTopics(img *meta.Image, env *Env, req *kmsg.CreateTopicsRequest, opts CreateOpts) ([]meta.Record, *kmsg.CreateTopicsResponse) {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	seen := map[string]int{}
	for _, t := range req.Topics {
		seen[t.Topic]++
	}
	ch := &change{img: img}
	answered := map[string]bool{}
	for i := range req.Topics {
		t := &req.Topics[i]
		if answered[t.Topic] {
			continue
		}
		answered[t.Topic] = true
		r := kmsg.NewCreateTopicsResponseTopic()
		r.Topic = t.Topic
		var recs []meta.Record
		err := error(nil)
		if seen[t.Topic] > 1 {
			err = mirrormsg.Errorf(kerr.InvalidRequest, "Duplicate topic name.")
		} else {
			recs, err = createTopic(ch.img, env, t, opts, &r)
		}
		if err != nil {
			r = kmsg.NewCreateTopicsResponseTopic()
			r.Topic = t.Topic
			r.ErrorCode, r.ErrorMessage = mirrormsg.CodeAndMessage(err)
		} else {
			ch.add(recs...)
		}
		resp.Topics = append(resp.Topics, r)
	}
	if req.ValidateOnly {
		return nil, resp
	}
	return ch.recs, resp
}

func createTopic(img *meta.Image, env *Env, t *kmsg.CreateTopicsRequestTopic, opts CreateOpts, r *kmsg.CreateTopicsResponseTopic) ([]meta.Record, error) {
	if err := CheckTopicName(t.Topic); err != nil {
		return nil, err
	}
	// As in Kafka, a client may make the offsets topic, but not what only brokers know how to lay out.
	if (t.Topic == mirrormsg.MirrorStateTopic || t.Topic == "__cluster_metadata") && !opts.Internal {
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Creation of internal topic %s is prohibited.", t.Topic)
	}
	if img.Topic(t.Topic) != nil {
		return nil, mirrormsg.Errorf(kerr.TopicAlreadyExists, "Topic '%s' already exists.", t.Topic)
	}
	if err := checkCollision(img, t.Topic); err != nil {
		return nil, err
	}
	set, err := topicConfigOf(t.Configs)
	if err != nil {
		return nil, err
	}
	assignment, err := assignmentOf(img, env, t)
	if err != nil {
		return nil, err
	}
	id, mirrored, err := mirrormsg.MirrorInfo(t)
	switch {
	case err != nil:
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "MirrorInfo: %v", err)
	case mirrored && id == [16]byte{}:
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "MirrorInfo: the topic id is zero")
	case mirrored:
		if err := checkUnusedID(img, id, t.Topic); err != nil {
			return nil, err
		}
		if err := allAlive(img, assignment); err != nil {
			return nil, err
		}
	default:
		id = env.newID(img)
	}
	recs, err := topicRecords(img, t.Topic, id, assignment, [16]byte{})
	if err != nil {
		return nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(set)) {
		v := set[k]
		recs = append(recs, &meta.SetConfig{Resource: meta.Resource{Type: meta.ResourceTopic, Name: t.Topic}, Key: k, Value: &v})
	}
	r.TopicID = id
	r.NumPartitions = int32(len(assignment))
	r.ReplicationFactor = int16(len(assignment[0]))
	r.Configs = createdConfigs(img, env, set)
	return recs, nil
}

func checkUnusedID(img *meta.Image, id [16]byte, name string) error {
	if other := img.TopicByID(id); other != nil {
		return mirrormsg.Errorf(kerr.TopicAlreadyExists, "Topic id %s, asked for topic '%s', is used by topic '%s'.", mirrormsg.UUIDString(id), name, other.Name)
	}
	return nil
}

func topicConfigOf(list []kmsg.CreateTopicsRequestTopicConfig) (map[string]string, error) {
	set := map[string]string{}
	for _, c := range list {
		if c.Value == nil {
			return nil, mirrormsg.Errorf(kerr.InvalidConfig, "Null value not supported for topic configs: %s", c.Name)
		}
		set[c.Name] = *c.Value
	}
	// The hidden keys are known to the table, but not to clients.
	for _, hidden := range []string{meta.ConfigMirrorName, meta.ConfigMirrorStart} {
		if _, ok := set[hidden]; ok {
			return nil, mirrormsg.Errorf(kerr.InvalidConfig, "Configuration %s is written by mirroring only.", hidden)
		}
	}
	if err := configs.Topic.CheckAll(set); err != nil {
		return nil, mirrormsg.Errorf(kerr.InvalidConfig, "%v", err)
	}
	return set, nil
}

func assignmentOf(img *meta.Image, env *Env, t *kmsg.CreateTopicsRequestTopic) ([][]int32, error) {
	if len(t.ReplicaAssignment) > 0 {
		return manualAssignment(img, t)
	}
	partitions, factor := t.NumPartitions, int(t.ReplicationFactor)
	if factor < -1 || factor == 0 {
		return nil, mirrormsg.Errorf(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	}
	if partitions < -1 || partitions == 0 {
		return nil, mirrormsg.Errorf(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	if partitions == -1 {
		partitions = int32(env.brokerInt(img, "num.partitions"))
	}
	if factor == -1 {
		factor = env.brokerInt(img, "default.replication.factor")
	}
	if partitions > maxPartitionsPerTopic {
		return nil, mirrormsg.Errorf(kerr.InvalidPartitions, "%d partitions were asked for; at most %d are allowed in one request.", partitions, maxPartitionsPerTopic)
	}
	return place(img, t.Topic, 0, partitions, factor)
}

// Kafka's controller refuses requests for more new partitions than this as well.
const maxPartitionsPerTopic = 10_000

func manualAssignment(img *meta.Image, t *kmsg.CreateTopicsRequestTopic) ([][]int32, error) {
	if t.ReplicationFactor != -1 {
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if t.NumPartitions != -1 {
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	n := len(t.ReplicaAssignment)
	assignment := make([][]int32, n)
	for _, a := range t.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= n {
			return nil, mirrormsg.Errorf(kerr.InvalidReplicaAssignment, "Partitions must be numbered from 0 without gaps; %d partitions are assigned and one of them is %d.", n, a.Partition)
		}
		if assignment[a.Partition] != nil {
			return nil, mirrormsg.Errorf(kerr.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		assignment[a.Partition] = append([]int32{}, a.Replicas...)
	}
	factor := 0
	for _, replicas := range assignment {
		if err := checkAssignment(img, replicas, factor); err != nil {
			return nil, err
		}
		factor = len(replicas)
	}
	return assignment, nil
}

// brokerConfigs are the configs of the broker that answers.
func (e *Env) brokerConfigs(img *meta.Image) configs.BrokerConfigs {
	return configs.BrokerConfigs{
		Dynamic:        img.Config(meta.ResourceBroker, strconv.Itoa(int(e.BrokerID))),
		DynamicDefault: img.Config(meta.ResourceBroker, ""),
		Static:         e.StaticConfig,
	}
}

func (e *Env) brokerInt(img *meta.Image, key string) int {
	v, _ := configs.BrokerValue(e.brokerConfigs(img), key)
	return int(configs.Int64(map[string]string{key: v}, key))
}

// createdConfigs are the effective configs of the new topic.
func createdConfigs(img *meta.Image, env *Env, set map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	var out []kmsg.CreateTopicsResponseTopicConfig
	for _, e := range configs.TopicEntries(set, env.brokerConfigs(img)) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.Source, c.IsSensitive = e.Def.Name, e.Value, int8(e.Source), e.Def.Sensitive()
		out = append(out, c)
	}
	return out
}
