package configs

import (
	"strconv"
	"strings"

	"stet/quota"
)

// The value readers panic on a value that Check would have refused: everything
// that reaches them has been checked.

// Int64 reads the value of a whole-number key.
func Int64(values map[string]string, key string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(values[key]), 10, 64)
	if err != nil {
		panic("BUG: unchecked config " + key + "=" + values[key])
	}
	return n
}

// Float64 reads the value of a checked double key.
func Float64(values map[string]string, key string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(values[key]), 64)
	if err != nil {
		panic("BUG: unchecked config " + key + "=" + values[key])
	}
	return n
}

// Bool reads the value of a boolean key.
func Bool(values map[string]string, key string) bool {
	return strings.EqualFold(strings.TrimSpace(values[key]), "true")
}

// Float reads the value of a number key.
func Float(values map[string]string, key string) float64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(values[key]), 64)
	if err != nil {
		panic("BUG: unchecked config " + key + "=" + values[key])
	}
	return f
}

// Replicas reads the value of a throttled-replicas key. One that Check refuses (an older version may
// have stored it) throttles nothing.
func Replicas(value string) quota.Replicas {
	r, err := quota.ParseReplicas(value)
	if err != nil {
		return quota.Replicas{}
	}
	return r
}
