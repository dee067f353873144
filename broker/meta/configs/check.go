package configs

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"stet/quota"
)

// check is a rule for values and its text, which follows "it must be".
type check struct {
	ok      func(string) bool
	allowed string
}

func parseInt(v string, bits int) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, bits)
	return n, err == nil
}

func bitsOf(t Type) int {
	switch t {
	case Short:
		return 16
	case Int:
		return 32
	}
	return 64
}

// anyOf allows every value of the type.
func anyOf(t Type) check {
	switch t {
	case Boolean:
		return check{func(v string) bool { return strings.EqualFold(v, "true") || strings.EqualFold(v, "false") }, "true or false"}
	case Short, Int, Long:
		return check{func(v string) bool { _, ok := parseInt(v, bitsOf(t)); return ok }, fmt.Sprintf("a whole number of %d bits", bitsOf(t))}
	case Double:
		return check{func(v string) bool { _, err := strconv.ParseFloat(strings.TrimSpace(v), 64); return err == nil }, "a number"}
	}
	return check{func(string) bool { return true }, "a text"}
}

func between(t Type, lo, hi int64) check {
	limit := int64(1)<<(bitsOf(t)-1) - 1
	text := fmt.Sprintf("a whole number from %d to %d", lo, hi)
	if hi >= limit {
		hi = limit
		text = fmt.Sprintf("a whole number of at least %d (and at most %d)", lo, limit)
	}
	return check{func(v string) bool { n, ok := parseInt(v, bitsOf(t)); return ok && n >= lo && n <= hi }, text}
}

func atLeast(t Type, lo int64) check { return between(t, lo, math.MaxInt64) }

func ratio() check {
	return check{func(v string) bool {
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return err == nil && f >= 0 && f <= 1
	}, "a number from 0 to 1"}
}

// aboveZero is a finite rate. Apache Kafka takes any number, and what it makes of 0 or NaN nobody can mean.
func aboveZero() check {
	return check{func(v string) bool {
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return err == nil && f > 0 && !math.IsInf(f, 1)
	}, "a number above 0 that is finite"}
}

func oneOf(values ...string) check {
	return check{func(v string) bool { return slices.Contains(values, v) }, "one of " + strings.Join(values, ", ")}
}

func listOf(values ...string) check {
	return check{func(v string) bool {
		return !slices.ContainsFunc(SplitList(v), func(p string) bool { return !slices.Contains(values, p) })
	}, "a list of " + strings.Join(values, ", ")}
}

func notEmpty() check {
	return check{func(v string) bool { return strings.TrimSpace(v) != "" }, "not empty"}
}

func or(extra string, c check) check {
	return check{func(v string) bool { return v == extra || c.ok(v) }, c.allowed + " or " + extra}
}

// throttledReplicas is "*" or a list of partition:broker; empty for none.
func throttledReplicas() check {
	return check{func(v string) bool { _, err := quota.ParseReplicas(v); return err == nil }, "empty, * or a list of PARTITION:BROKER"}
}

// patterns is a list of RE2 expressions.
func patterns() check {
	return check{func(v string) bool {
		return !slices.ContainsFunc(SplitList(v), func(p string) bool { _, err := regexp.Compile(p); return err != nil })
	}, "a list of RE2 regular expressions"}
}

// bootstrap is a list of host:port.
func bootstrap() check {
	return check{func(v string) bool {
		parts := SplitList(v)
		for _, p := range parts {
			host, port, ok := cutPort(p)
			if n, err := strconv.Atoi(port); !ok || err != nil || n < 1 || n > 65535 || host == "" || strings.ContainsAny(host, "/ ") {
				return false
			}
		}
		return len(parts) > 0
	}, "a list of HOST:PORT with ports from 1 to 65535"}
}

func cutPort(hostPort string) (host, port string, ok bool) {
	i := strings.LastIndexByte(hostPort, ':')
	if i < 0 {
		return "", "", false
	}
	host = hostPort[:i]
	bracketed := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if strings.Contains(host, ":") && !bracketed { // an IPv6 address needs brackets
		return "", "", false
	}
	return host, hostPort[i+1:], true
}
