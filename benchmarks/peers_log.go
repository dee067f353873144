package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	compactSegment = 64 << 20
	compactKeys    = 100_000
)

var (
	loadedLogs = regexp.MustCompile(`Loaded (\d+) logs in (\d+) ?ms`)
	cleanedLog = regexp.MustCompile(`([\d.,]+) MB of log processed in ([\d.,]+) seconds`)
)

// kafkaLog opens and compacts the very directory that a Kafka was killed over, with Kafka and with our log: what its log manager
// says about loading beside the opening of the same files, and what its cleaner says beside ours. The JVM's start counts for neither.
func (b *bench) kafkaLog(ctx context.Context) error {
	k, err := b.startKafka(ctx, "log-kafka", 1, "--set", "log.cleaner.backoff.ms=200")
	if err != nil {
		return err
	}
	defer k.stop()
	shape := shape16k
	shape.partitions = 50
	if err := fill(ctx, k.bootstrap, "plain", shape, b.bytes()); err != nil {
		return err
	}
	if err := k.fillKeyed(ctx, b.bytes()/2); err != nil {
		return err
	}
	pid, err := k.pid(1)
	if err != nil {
		return err
	}
	ours := b.dir("log-stet")
	var open pairs
	for range b.rounds {
		if err := k.script("kill", "1"); err != nil {
			return fmt.Errorf("kill of %d: %w", pid, err)
		}
		if err := unclean(k.data(1)); err != nil {
			return err
		}
		if err := os.RemoveAll(ours); err != nil {
			return err
		}
		if err := os.CopyFS(ours, os.DirFS(k.data(1))); err != nil {
			return err
		}
		o, err := b.openLog(ctx, ours)
		if err != nil {
			return err
		}
		if err := k.script("start-node", "1"); err != nil {
			return err
		}
		m, err := k.logged(loadedLogs)
		if err != nil {
			return err
		}
		ms, err := strconv.ParseFloat(m[2], 64)
		if err != nil || m[1] == "0" {
			return fmt.Errorf("the log of Kafka says %q", m[0])
		}
		open.add(o.Open.Seconds()*1e3, ms)
	}
	b.add(open.against("log-kafka", fmt.Sprintf("scan of %.2f GiB after an unclean stop", float64(logBytes(ours, "*"))/(1<<30)), "ms", "Kafka, the same files").most("issue 4", 1))

	if err := k.alter(ctx, "keyed", "min.compaction.lag.ms", "0"); err != nil {
		return err
	}
	c, err := b.openLog(ctx, ours, "--compact", "keyed", "--segment-bytes", strconv.Itoa(compactSegment))
	if err != nil {
		return err
	}
	mb, secs, err := k.cleaned(ctx)
	if err != nil {
		return err
	}
	before := logBytes(ours, "keyed")
	bytes := c.Bytes - logBytes(ours, "plain")
	r := row{
		scenario: "log-kafka", what: "compaction", unit: "MB/s", value: float64(bytes) / 1e6 / c.Compact.Seconds(), baseline: "Kafka's cleaner, the same data", base: mb * 1.048576 / secs,
		note: fmt.Sprintf("%.0f MB in segments of 64 MiB, %d keys; %.0f MB are left here; 1 round", float64(bytes)/1e6, compactKeys, float64(before)/1e6),
	}
	r.ratio = r.value / r.base
	b.add(r.least("issue 4", 1))
	return nil
}

func (k *kafka) script(action string, args ...string) error {
	return runScript(append([]string{action, k.dir}, args...)...)
}

// logged is the last line of node 1's log that matches.
func (k *kafka) logged(re *regexp.Regexp) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(k.dir, "node-1", "server.log"))
	if err != nil {
		return nil, err
	}
	all := re.FindAllStringSubmatch(string(text), -1)
	if len(all) == 0 {
		return nil, fmt.Errorf("the log of Kafka has no line like %q", re)
	}
	return all[len(all)-1], nil
}

// cleaned sums up what Kafka's cleaner says until it rests.
func (k *kafka) cleaned(ctx context.Context) (mb, secs float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	quiet := 0
	for last := 0; quiet < 20; {
		text, err := os.ReadFile(filepath.Join(k.dir, "node-1", "server.log"))
		if err != nil {
			return 0, 0, err
		}
		all := cleanedLog.FindAllStringSubmatch(string(text), -1)
		if len(all) > 0 && len(all) == last {
			quiet++
		} else {
			quiet, last, mb, secs = 0, len(all), 0, 0
		}
		if quiet == 0 {
			for _, m := range all {
				x, err1 := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
				y, err2 := strconv.ParseFloat(strings.ReplaceAll(m[2], ",", ""), 64)
				if err := errors.Join(err1, err2); err != nil {
					return 0, 0, err
				}
				mb, secs = mb+x, secs+y
			}
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return 0, 0, errors.New("the cleaner of Kafka does not come to rest, or has not begun")
		}
	}
	return mb, secs, nil
}

func (k *kafka) alter(ctx context.Context, topic, key, value string) error {
	r, err := kadm.NewClient(k.cl).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	if err != nil {
		return err
	}
	return r[0].Err
}

// fillKeyed makes a compacted topic of one partition that is not to be compacted yet.
func (k *kafka) fillKeyed(ctx context.Context, bytes int64) error {
	compact, segment, later := "compact", strconv.Itoa(compactSegment), "86400000"
	ratio := "0.01"
	r, err := kadm.NewClient(k.cl).CreateTopic(ctx, 1, 1, map[string]*string{
		"cleanup.policy": &compact, "segment.bytes": &segment, "min.compaction.lag.ms": &later, "min.cleanable.dirty.ratio": &ratio,
	}, "keyed")
	if err != nil {
		return err
	}
	if r.Err != nil {
		return r.Err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.bootstrap), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return err
	}
	defer cl.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 1000)
	var failed error
	for n := int64(0); n < bytes && ctx.Err() == nil; n += 1024 {
		cl.Produce(ctx, &kgo.Record{Topic: "keyed", Key: fmt.Appendf(nil, "key-%016d", rnd.IntN(compactKeys)), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err // callbacks come one at a time
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	return failed
}
