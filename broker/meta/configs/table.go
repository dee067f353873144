package configs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Type is the type of a value; the numbers are those of DescribeConfigs (KIP-569).
type Type int8

// The types.
const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

// Def describes one key.
type Def struct {
	Name    string
	Type    Type
	Default string
	// NoDefault says that the key has no value unless it is set (null in DescribeConfigs).
	NoDefault bool
	// Dynamic says that a broker key can be changed while the broker runs. All
	// topic, mirror and group keys can.
	Dynamic bool
	// Synonyms of a topic key are the broker keys that give its default, the first
	// one that is set wins.
	Synonyms []Synonym
	// Hidden keys are written by the controller only and never shown.
	Hidden bool
	// Unused keys are Kafka's, without a meaning here.
	Unused bool
	Doc    string

	check check
}

// Sensitive values are never returned.
func (d *Def) Sensitive() bool { return d.Type == Password }

// Synonym is a broker key and the factor from its unit to the topic key's.
type Synonym struct {
	Name   string
	Factor int64
}

// Table is the set of keys of one kind of resource.
type Table struct {
	kind  string // "topic", "broker", ...
	defs  map[string]*Def
	names []string // sorted, without hidden ones
	// refuse explains known keys that cannot be used, nil for a key that can.
	refuse func(key, value string) error
}

func newTable(kind string, defs []Def) *Table {
	t := &Table{kind: kind, defs: map[string]*Def{}}
	for i := range defs {
		d := &defs[i]
		if d.check.ok == nil {
			d.check = anyOf(d.Type)
		}
		if t.defs[d.Name] != nil {
			panic("BUG: config key defined twice: " + d.Name)
		}
		t.defs[d.Name] = d
	}
	for _, name := range slices.Sorted(maps.Keys(t.defs)) {
		if !t.defs[name].Hidden {
			t.names = append(t.names, name)
		}
	}
	return t
}

// Lookup returns nil for a key that is not known.
func (t *Table) Lookup(key string) *Def { return t.defs[key] }

// Names lists the keys that are not hidden, sorted. The slice must not be changed.
func (t *Table) Names() []string { return t.names }

// UnknownKeyError says that a table does not have a key.
type UnknownKeyError struct{ Kind, Key, Nearest string }

func (e *UnknownKeyError) Error() string {
	if e.Nearest == "" {
		return fmt.Sprintf("Unknown %s config name: %s", e.Kind, e.Key)
	}
	return fmt.Sprintf("Unknown %s config name: %s (the nearest known one is %s)", e.Kind, e.Key, e.Nearest)
}

// ValueError says that a value is not allowed.
type ValueError struct{ Key, Value, Allowed string }

func (e *ValueError) Error() string {
	return fmt.Sprintf("Invalid value %s for configuration %s: it must be %s", e.Value, e.Key, e.Allowed)
}

// NotBuiltError says that a known key asks for something that Stet does not have yet.
type NotBuiltError struct{ Key, Value, Why string }

func (e *NotBuiltError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("Configuration %s cannot be used: %s", e.Key, e.Why)
	}
	return fmt.Sprintf("Invalid value %s for configuration %s: %s", e.Value, e.Key, e.Why)
}

// Check validates one key and its value: *UnknownKeyError, *NotBuiltError or *ValueError.
func (t *Table) Check(key, value string) error {
	if t.refuse != nil {
		if err := t.refuse(key, value); err != nil {
			return err
		}
	}
	d := t.defs[key]
	if d == nil || d.Hidden {
		return &UnknownKeyError{t.kind, key, t.Nearest(key)}
	}
	if !d.check.ok(value) {
		if d.Sensitive() {
			value = "[hidden]"
		}
		return &ValueError{key, value, d.check.allowed}
	}
	return nil
}

// CheckAll validates every key of a set and what must hold between keys. It
// reports the first error in the order of the keys.
func (t *Table) CheckAll(set map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if d := t.defs[k]; d != nil && d.Hidden {
			continue
		}
		if err := t.Check(k, set[k]); err != nil {
			return err
		}
	}
	if t == Topic {
		return checkTopic(set)
	}
	if t == Mirror {
		return checkMirror(set)
	}
	return nil
}

// Nearest is the known key that is most like the given one, "" if none is alike.
func (t *Table) Nearest(key string) string {
	best, bestDistance := "", max(2, len(key)/3)+1
	for _, name := range t.names {
		d := distance(strings.ToLower(key), name)
		// A key that lacks or has one part too many is alike too.
		if strings.HasSuffix(name, "."+key) || strings.HasSuffix(key, "."+name) {
			d = min(d, 2)
		}
		if d < bestDistance || d == bestDistance && best != "" && cmp.Less(name, best) {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance is the number of characters to insert, remove, replace or swap.
func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

// IsList says whether APPEND and SUBTRACT apply to the key.
func (t *Table) IsList(key string) bool {
	d := t.defs[key]
	return d != nil && d.Type == List
}

// SplitList splits the value of a list key; the empty value is the empty list.
func SplitList(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	parts := strings.Split(value, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
