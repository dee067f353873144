package mirror

import (
	"fmt"
	"regexp"
	"strings"

	"stet/broker/meta/configs"
)

// filter is a list of RE2 patterns that match in full.
type filter []*regexp.Regexp

// parseFilter reads a comma-separated list.
func parseFilter(list string) (filter, error) {
	var f filter
	for _, p := range configs.SplitList(list) {
		re, err := compile(p)
		if err != nil {
			return nil, err
		}
		f = append(f, re)
	}
	return f, nil
}

func compile(pattern string) (*regexp.Regexp, error) {
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	return re, nil
}

func (f filter) match(s string) bool {
	for _, re := range f {
		if re.MatchString(s) {
			return true
		}
	}
	return false
}

// syncedConfig says whether a topic config of a source is taken over (SPEC section 8).
func syncedConfig(name string, exclude filter) bool {
	d := configs.Topic.Lookup(name)
	return d != nil && !d.Hidden && !strings.HasPrefix(name, "mirror.") && !exclude.match(name)
}
