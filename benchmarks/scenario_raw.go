package main

import (
	"context"
	"fmt"
)

// rawVariants are ways to receive, check and write that might be the better baseline, and the better mirror. The first
// is the raw loop as the other scenarios have it.
var rawVariants = []struct {
	what string
	args []string
}{
	{"whole response, one write per partition", nil},
	{"whole response, 256 KiB pieces", []string{"--piece", "262144"}},
	{"whole response, 128 KiB pieces", []string{"--piece", "131072"}},
	{"whole response, 16 KiB pieces", []string{"--piece", "16384"}},
	{"256 KiB streaming", []string{"--stream", "262144"}},
	{"whole response, allocated in 64 MiB", []string{"--allocate", "67108864"}},
	{"whole response, RWF_DONTCACHE", []string{"--uncached"}},
	{"whole response, RWF_DONTCACHE, allocated", []string{"--uncached", "--allocate", "67108864"}},
}

// rawLoops measures the variants in turn, round by round.
func (b *bench) rawLoops(ctx context.Context) error {
	for _, s := range []shape{shape16k, shape1m} {
		p, err := b.prepare(ctx, s, 0)
		if err != nil {
			return err
		}
		defer p.drop()
		cpu, rate := make([]pairs, len(rawVariants)), make([]pairs, len(rawVariants))
		for range b.rounds {
			var first usage
			for i, v := range rawVariants {
				u, err := b.raw(ctx, p.src.addr, p.topic, v.args...)
				if err != nil {
					return fmt.Errorf("%s: %w", v.what, err)
				}
				if i == 0 {
					first = u
				}
				cpu[i].add(u.perGiB(), first.perGiB())
				rate[i].add(u.rate(), first.rate())
			}
		}
		for i, v := range rawVariants {
			r := cpu[i].against("raw-"+s.name, "CPU, "+v.what, "CPU-s/GiB", "one write per partition")
			r.note = fmt.Sprintf("%s; %.0f MB/s", r.note, median(rate[i].subject))
			b.add(r)
		}
	}
	return nil
}
