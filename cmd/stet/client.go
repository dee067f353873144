package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/magiconair/properties"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
)

// dialPatience bounds how long a tool looks for the first broker.
const dialPatience = 5 * time.Second

// connect returns a client for the tools' requests. It first makes sure that one
// of the servers speaks Kafka's protocol, so that the error says what is wrong.
func connect(ctx context.Context, bootstrap, commandConfig string, opts ...kgo.Opt) (*kgo.Client, error) {
	if bootstrap == "" {
		return nil, usagef("--bootstrap-server is missing; example: --bootstrap-server 127.0.0.1:9092")
	}
	if err := checkCommandConfig(commandConfig); err != nil {
		return nil, err
	}
	seeds := strings.Split(bootstrap, ",")
	for i := range seeds {
		seeds[i] = strings.TrimSpace(seeds[i])
		if _, _, err := net.SplitHostPort(seeds[i]); err != nil {
			return nil, usagef("%q is not HOST:PORT", seeds[i])
		}
	}
	var err error
	for _, s := range seeds {
		if err = probe(ctx, s); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.MaxVersions(mirrormsg.MaxVersions()), kgo.ClientID("stet-cli"),
		kgo.RequestTimeoutOverhead(35 * time.Second), kgo.RetryTimeout(20 * time.Second), kgo.MetadataMinAge(100 * time.Millisecond),
	}, opts...)
	return kgo.NewClient(opts...)
}

// probe asks one server for its API versions and explains what went wrong.
func probe(ctx context.Context, addr string) error {
	d := net.Dialer{Timeout: dialPatience}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Err != nil {
			err = op.Err
		}
		return fmt.Errorf("cannot reach %s: %w", addr, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(dialPatience))
	req := kmsg.NewPtrApiVersionsRequest() // version 0
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("stet-cli"))
	if _, err := conn.Write(f.AppendRequest(nil, req, 1)); err != nil {
		return fmt.Errorf("%s does not speak the Kafka protocol: %w", addr, err)
	}
	head, n := readHead(conn)
	if n == 0 {
		// A server of a line protocol waits for the end of a line; give it one, the
		// connection is thrown away in any case.
		if _, err := conn.Write([]byte("\r\n\r\n")); err == nil {
			head, n = readHead(conn)
		}
	}
	switch {
	case n >= 4 && string(head[:4]) == "HTTP":
		return fmt.Errorf("%s does not speak the Kafka protocol: it answered with HTTP", addr)
	case n >= 2 && head[0] == 0x15 && head[1] == 3:
		return fmt.Errorf("%s does not speak the plain Kafka protocol: it answered with a TLS alert", addr)
	case n < len(head):
		return fmt.Errorf("%s does not speak the Kafka protocol: it closed the connection or did not answer in %s", addr, dialPatience)
	case head[4] != 0 || head[5] != 0 || head[6] != 0 || head[7] != 1:
		return fmt.Errorf("%s does not speak the Kafka protocol: it answered %q", addr, head)
	}
	return nil
}

// answerPatience bounds the wait for the first bytes of an answer.
const answerPatience = dialPatience / 2

// readHead reads the first eight bytes, or as many as come.
func readHead(conn net.Conn) (head [8]byte, n int) {
	_ = conn.SetReadDeadline(time.Now().Add(answerPatience))
	for n < len(head) {
		k, err := conn.Read(head[n:])
		n += k
		if err != nil {
			break
		}
	}
	return head, n
}

// checkCommandConfig reads a client properties file; what it asks for must be built.
func checkCommandConfig(file string) error {
	if file == "" {
		return nil
	}
	p, err := readProperties(file)
	if err != nil {
		return err
	}
	for _, k := range p.Keys() {
		v := p.GetString(k, "")
		switch {
		case k == "security.protocol" && strings.EqualFold(v, "PLAINTEXT"):
		case k == "security.protocol", strings.HasPrefix(k, "sasl."), strings.HasPrefix(k, "ssl."):
			return fmt.Errorf("%s: %s=%s: only security.protocol=PLAINTEXT is built so far", file, k, v)
		}
	}
	return nil
}

func readProperties(file string) (*properties.Properties, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	l := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := l.LoadBytes(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}
