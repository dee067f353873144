package broker

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/magiconair/properties"

	"stet/broker/meta/configs"
	"stet/internal/vfs"
)

// Config is a checked server.properties.
type Config struct {
	// Static holds what the file and --set said.
	Static map[string]string
	// Warnings are keys of Kafka that have no meaning here, a line each.
	Warnings []string
	// logFS is where the logs are; nil: the operating system's files. Tests let it fail.
	logFS vfs.FS
}

// LoadConfig reads a properties file (empty: none) and KEY=VALUE settings, which
// win. Errors name file, line, key, value and what is allowed.
func LoadConfig(file string, sets []string) (*Config, error) {
	c := &Config{Static: map[string]string{}}
	where := map[string]string{}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		l := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
		p, err := l.LoadBytes(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		lines := keyLines(string(text))
		for _, k := range p.Keys() {
			c.Static[k] = strings.TrimSpace(p.GetString(k, ""))
			where[k] = file
			if n := lines[k]; n > 0 {
				where[k] = fmt.Sprintf("%s:%d", file, n)
			}
		}
	}
	for _, s := range sets {
		k, v, ok := strings.Cut(s, "=")
		if k = strings.TrimSpace(k); !ok || k == "" {
			return nil, fmt.Errorf("--set %q is not KEY=VALUE", s)
		}
		c.Static[k], where[k] = strings.TrimSpace(v), "--set"
	}
	keys := make([]string, 0, len(c.Static))
	for k := range c.Static {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if err := configs.Broker.Check(k, c.Static[k]); err != nil {
			return nil, fmt.Errorf("%s: %w", where[k], err)
		}
		if d := configs.Broker.Lookup(k); d != nil && d.Unused {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s: %s has no meaning for Stet and is ignored", where[k], k))
		}
	}
	if err := configs.Broker.CheckAll(c.Static); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if _, err := c.listeners(); err != nil {
		return nil, err
	}
	return c, nil
}

// keyLines finds the line on which each key is set; the last one wins.
func keyLines(text string) map[string]int {
	lines := map[string]int{}
	continued := false
	for i, line := range strings.Split(text, "\n") {
		t := strings.TrimLeft(line, " \t")
		this := continued
		continued = strings.HasSuffix(strings.TrimRight(line, "\r"), "\\")
		if this || t == "" || t[0] == '#' || t[0] == '!' {
			continue
		}
		if end := strings.IndexAny(t, "=: \t"); end > 0 {
			lines[t[:end]] = i + 1
		} else {
			lines[strings.TrimSpace(t)] = i + 1
		}
	}
	return lines
}

// value is the effective static value of a key.
func (c *Config) value(key string) string {
	v, _ := configs.BrokerValue(configs.BrokerConfigs{Static: c.Static}, key)
	return v
}

func (c *Config) int(key string) int64 {
	n, err := strconv.ParseInt(c.value(key), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("BUG: %s was checked and is not a number: %q", key, c.value(key)))
	}
	return n
}

func (c *Config) bool(key string) bool { return c.value(key) == "true" }

// NodeID is node.id, or the older broker.id.
func (c *Config) NodeID() int32 {
	if _, ok := c.Static["node.id"]; !ok {
		if v, ok := c.Static["broker.id"]; ok {
			if n, err := strconv.ParseInt(v, 10, 32); err == nil && n >= 0 {
				return int32(n)
			}
		}
	}
	return int32(c.int("node.id"))
}

// LogDirs are log.dirs, or the older log.dir.
func (c *Config) LogDirs() []string {
	if dirs := configs.SplitList(c.Static["log.dirs"]); len(dirs) > 0 {
		return dirs
	}
	return configs.SplitList(c.value("log.dir"))
}

// listener is one address to serve clients on.
type listener struct {
	name, bind       string // bind is HOST:PORT, an empty host is every interface
	advHost, advPort string // what clients are told; "" and "0": what was bound
}

func (c *Config) listeners() ([]listener, error) {
	skip := map[string]bool{}
	for _, n := range configs.SplitList(c.value("controller.listener.names")) {
		skip[strings.ToUpper(n)] = true
	}
	protocols := map[string]string{}
	for _, e := range configs.SplitList(c.value("listener.security.protocol.map")) {
		if n, p, ok := strings.Cut(e, ":"); ok {
			protocols[strings.ToUpper(n)] = strings.ToUpper(p)
		}
	}
	adv := map[string][2]string{}
	for _, e := range configs.SplitList(c.Static["advertised.listeners"]) {
		name, host, port, err := splitListener(e)
		if err != nil {
			return nil, fmt.Errorf("advertised.listeners: %w", err)
		}
		adv[name] = [2]string{host, port}
	}
	var out []listener
	for _, e := range configs.SplitList(c.value("listeners")) {
		name, host, port, err := splitListener(e)
		if err != nil {
			return nil, fmt.Errorf("listeners: %w", err)
		}
		if skip[name] {
			continue
		}
		p, ok := protocols[name]
		if !ok {
			return nil, fmt.Errorf("listeners: %s has no entry in listener.security.protocol.map", name)
		}
		if p != "PLAINTEXT" {
			return nil, fmt.Errorf("listeners: %s uses %s, which is not built yet; allowed is PLAINTEXT", name, p)
		}
		l := listener{name: name, bind: host + ":" + port, advHost: host, advPort: port}
		if strings.Contains(host, ":") {
			l.bind = "[" + host + "]:" + port
		}
		if a, ok := adv[name]; ok {
			l.advHost, l.advPort = a[0], a[1]
		}
		if l.advHost == "" || l.advHost == "0.0.0.0" || l.advHost == "::" {
			if l.advHost, err = os.Hostname(); err != nil {
				return nil, fmt.Errorf("listeners: %s needs advertised.listeners: %w", name, err)
			}
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		return nil, errors.New("listeners: there is none for clients")
	}
	return out, nil
}

func splitListener(s string) (name, host, port string, err error) {
	name, rest, ok := strings.Cut(s, "://")
	i := strings.LastIndex(rest, ":")
	if !ok || i < 0 || name == "" {
		return "", "", "", fmt.Errorf("%q is not NAME://HOST:PORT", s)
	}
	host, port = strings.Trim(rest[:i], "[]"), rest[i+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return "", "", "", fmt.Errorf("%q: port %q is not 0 to 65535", s, port)
	}
	return strings.ToUpper(name), host, port, nil
}
