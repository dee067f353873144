package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sort"
	"strconv"
	"strings"
	"time"

	"stet/zerocopy"
)

// Options say how a source is reached.
type Options struct {
	Mirror    string
	BrokerID  int32    // of this broker, for the client id
	Bootstrap []string // host:port
	// RequestTimeout bounds a control request, and a fetch beyond its own wait.
	RequestTimeout time.Duration
	// DialTimeout bounds connecting, negotiation included.
	DialTimeout time.Duration
	// SendBuffer and ReceiveBuffer are socket buffer sizes in bytes, 0 for the system's.
	SendBuffer, ReceiveBuffer int
	// MaxIdle is the time after which a control connection is not used again.
	MaxIdle time.Duration
	// MaxFrame is the largest response in bytes.
	MaxFrame int
	// Pool lends the buffers of fetch responses.
	Pool   *zerocopy.Pool
	Logger *slog.Logger
	// Dial, if set, replaces the net package's dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// ErrConfig says that a mirror's connection settings cannot be used.
var ErrConfig = errors.New("invalid mirror configuration")

// ReadConfig takes the connection settings out of a mirror's configuration (SPEC section 11); keys that are
// none of its business are left alone. Settings whose part is not built are refused by name.
func (o *Options) ReadConfig(config map[string]string) error {
	o.RequestTimeout, o.DialTimeout, o.MaxIdle = 30*time.Second, 10*time.Second, 9*time.Minute
	keys := make([]string, 0, len(config))
	for k := range config {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		v := strings.TrimSpace(config[k])
		var err error
		switch {
		case k == "bootstrap.servers":
			o.Bootstrap, err = parseBootstrap(v)
		case k == "security.protocol":
			if v != "" && !strings.EqualFold(v, "PLAINTEXT") {
				err = fmt.Errorf("%s=%s is not supported by this version; allowed: PLAINTEXT", k, v)
			}
		case strings.HasPrefix(k, "sasl.") || strings.HasPrefix(k, "ssl."):
			err = fmt.Errorf("%s is not supported by this version; allowed: security.protocol=PLAINTEXT without sasl.* and ssl.*", k)
		case k == "request.timeout.ms":
			o.RequestTimeout, err = parseMillis(k, v)
		case k == "connections.max.idle.ms":
			o.MaxIdle, err = parseMillis(k, v)
		case k == "socket.connection.setup.timeout.ms":
			o.DialTimeout, err = parseMillis(k, v)
		case k == "socket.receive.buffer.bytes":
			o.ReceiveBuffer, err = parseBuffer(k, v)
		case k == "socket.send.buffer.bytes":
			o.SendBuffer, err = parseBuffer(k, v)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if len(o.Bootstrap) == 0 {
		return fmt.Errorf("%w: bootstrap.servers is required", ErrConfig)
	}
	return nil
}

func parseBootstrap(v string) ([]string, error) {
	var out []string
	for _, s := range strings.Split(v, ",") {
		s = strings.TrimSpace(s)
		if s == "" {
			continue
		}
		host, port, err := net.SplitHostPort(s)
		n, perr := strconv.Atoi(port)
		if err != nil || host == "" || perr != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("bootstrap.servers: %q is not host:port", s)
		}
		out = append(out, s)
	}
	return out, nil
}

func parseMillis(k, v string) (time.Duration, error) {
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%s: milliseconds from 1 on are allowed", k, v)
	}
	return time.Duration(n) * time.Millisecond, nil
}

func parseBuffer(k, v string) (int, error) {
	n, err := strconv.ParseInt(v, 10, 31)
	if err != nil || n < -1 {
		return 0, fmt.Errorf("%s=%s: bytes are allowed, -1 for the system's default", k, v)
	}
	return int(max(n, 0)), nil
}

func (o *Options) complete() {
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 30 * time.Second
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.MaxIdle == 0 {
		o.MaxIdle = 9 * time.Minute
	}
	if o.MaxFrame == 0 {
		o.MaxFrame = 128 << 20
	}
	if o.Pool == nil {
		o.Pool = zerocopy.NewPool(128 << 20)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
}

// fetcherClientID is the client id of fetcher n (SPEC section 5).
func (o *Options) fetcherClientID(n int) string {
	return fmt.Sprintf("broker-%d-fetcher-%d-mirror-%s", o.BrokerID, n, o.Mirror)
}

// controlClientID is that of connections which do not fetch.
func (o *Options) controlClientID() string {
	return fmt.Sprintf("broker-%d-mirror-%s", o.BrokerID, o.Mirror)
}
