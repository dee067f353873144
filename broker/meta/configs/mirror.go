package configs

import "strings"

// Mirror are the keys of a mirror (SPEC section 11).
var Mirror = withRefusal(newTable("mirror", []Def{
	{Name: "bootstrap.servers", Type: List, NoDefault: true, check: bootstrap(), Doc: "Brokers of the source to begin with, HOST:PORT,..."},
	{Name: "source.cluster.id", Type: String, NoDefault: true, Doc: "The source's cluster id; unset: taken at the first contact."},
	{Name: "mirror.topics.include", Type: List, Default: "", check: patterns(), Doc: "Source topics (RE2, full match) that are started by themselves."},
	{Name: "mirror.topics.exclude", Type: List, Default: "__.*", check: patterns(), Doc: "Source topics (RE2, full match) that are not; it wins over include."},
	{Name: "mirror.groups.include", Type: List, Default: ".*", check: patterns(), Doc: "Consumer groups whose offsets are synced."},
	{Name: "mirror.groups.exclude", Type: List, Default: "", check: patterns(), Doc: "Consumer groups whose offsets are not."},
	{Name: "mirror.acls.include", Type: List, Default: "*", Doc: "Rules resourceType;resourceName;operation;permissionType;principal for the ACLs that are synced."},
	{
		Name: "mirror.topic.properties.exclude", Type: List, check: patterns(), Doc: "Topic configs that are not synced.",
		Default: "follower.replication.throttled.replicas,leader.replication.throttled.replicas,mirror.replication.throttled.replicas,message.timestamp.after.max.ms,message.timestamp.before.max.ms,message.timestamp.difference.max.ms,message.timestamp.type,unclean.leader.election.enable,min.insync.replicas",
	},
	{Name: "mirror.on.gap", Type: String, Default: "continue", check: oneOf("continue", "fail"), Doc: "What is done when the source has deleted records that were not copied."},
	{Name: "fetch.wait.max.ms", Type: Int, Default: "500", check: atLeast(Int, 0), Doc: "How long the source may hold a fetch without data."},
	{Name: "fetch.min.bytes", Type: Int, Default: "1", check: atLeast(Int, 0), Doc: "How many bytes the source waits for."},
	{Name: "fetch.max.bytes", Type: Int, Default: "1048576", check: atLeast(Int, 1), Doc: "The limit per partition of a fetch, to begin with."},
	{Name: "fetch.response.max.bytes", Type: Int, Default: "10485760", check: atLeast(Int, 1), Doc: "The limit of a fetch response, to begin with."},
	{Name: "fetch.backoff.ms", Type: Int, Default: "1000", check: atLeast(Int, 0), Doc: "The pause after a failed fetch."},
	{Name: "request.timeout.ms", Type: Int, Default: "30000", check: atLeast(Int, 1), Doc: "How long an answer of the source is waited for."},
	{Name: "socket.connection.setup.timeout.ms", Type: Long, Default: "10000", check: atLeast(Long, 1), Doc: "How long a connection may take."},
	{Name: "socket.connection.setup.timeout.max.ms", Type: Long, Default: "30000", check: atLeast(Long, 1), Doc: "The upper bound of the above when it fails again and again."},
	{Name: "socket.receive.buffer.bytes", Type: Int, Default: "-1", check: atLeast(Int, -1), Doc: "SO_RCVBUF; -1: the system's."},
	{Name: "socket.send.buffer.bytes", Type: Int, Default: "-1", check: atLeast(Int, -1), Doc: "SO_SNDBUF; -1: the system's."},
	{Name: "connections.max.idle.ms", Type: Long, Default: "540000", check: atLeast(Long, -1), Doc: "When an idle connection is closed."},
	{Name: "security.protocol", Type: String, Default: "PLAINTEXT", Doc: "How to talk to the source."},
}), refuseMirrorSecurity)

func withRefusal(t *Table, refuse func(key, value string) error) *Table {
	t.refuse = refuse
	return t
}

// refuseMirrorSecurity names what is not built yet, so that nobody believes that
// a connection is secured when it is not.
func refuseMirrorSecurity(key, value string) error {
	switch {
	case key == "security.protocol" && !strings.EqualFold(value, "PLAINTEXT"):
		for _, known := range []string{"SSL", "SASL_PLAINTEXT", "SASL_SSL"} {
			if strings.EqualFold(value, known) {
				return &NotBuiltError{key, value, "this version of Stet connects to a source with PLAINTEXT only"}
			}
		}
		return &ValueError{key, value, "PLAINTEXT"}
	case strings.HasPrefix(key, "sasl."):
		return &NotBuiltError{key, "", "this version of Stet does not authenticate at a source yet (sasl.*)"}
	case strings.HasPrefix(key, "ssl."):
		return &NotBuiltError{key, "", "this version of Stet does not encrypt connections to a source yet (ssl.*)"}
	}
	return nil
}

func checkMirror(set map[string]string) error {
	if v, ok := set["bootstrap.servers"]; !ok || v == "" {
		return &ValueError{"bootstrap.servers", "(nothing)", "set: " + Mirror.defs["bootstrap.servers"].check.allowed}
	}
	return nil
}

// MirrorValue is the value of a mirror key, or its default.
func MirrorValue(set map[string]string, key string) string {
	if v, ok := set[key]; ok {
		return v
	}
	return Mirror.defs[key].Default
}
