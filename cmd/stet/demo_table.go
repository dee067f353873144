package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/twmb/franz-go/pkg/kadm"

	"stet/broker/mirrormsg"
)

const (
	demoSample = 100 * time.Millisecond // lag samples, for a real source
	demoRedraw = 10                     // samples between two tables
)

// table draws a row per topic each second until the duration is over. With a load
// of our own it goes on until everything that was written is copied.
func (d *demo) table(ctx context.Context, embedded bool) error {
	tick := time.NewTicker(demoSample)
	defer tick.Stop()
	start := time.Now()
	end := start.Add(d.duration)
	live := isTerminal(os.Stdout)
	var before map[string]int64
	lines := 0
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		resp, err := describeMirrors(ctx, d.cl, demoMirror)
		if err != nil {
			return err
		}
		over := !time.Now().Before(end)
		if !embedded {
			d.sample(resp)
		}
		if n%demoRedraw != 0 && !over {
			continue
		}
		sizes, err := d.sizes(ctx)
		if err != nil {
			return err
		}
		text := d.draw(resp, sizes, before, time.Since(start))
		if live && lines > 0 {
			fmt.Printf("\x1b[%dA\x1b[J", lines)
		}
		fmt.Println(text)
		lines = strings.Count(text, "\n") + 1
		before = sizes
		d.took = time.Since(start)
		if over {
			for _, s := range sizes {
				d.copied += s
			}
			return nil
		}
	}
}

// sample notes the lag in ms of every partition that knows it.
func (d *demo) sample(resp *mirrormsg.DescribeMirrorsResponse) {
	for i := range resp.Mirrors {
		for j := range resp.Mirrors[i].Topics {
			for _, p := range resp.Mirrors[i].Topics[j].Partitions {
				if p.LagMs >= 0 {
					d.lag.Record(time.Duration(p.LagMs)*time.Millisecond, 1)
				}
			}
		}
	}
}

// sizes are the bytes stored at the destination by topic.
func (d *demo) sizes(ctx context.Context) (map[string]int64, error) {
	dirs, err := kadm.NewClient(d.cl).DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	dirs.Each(func(dir kadm.DescribedLogDir) {
		for topic, parts := range dir.Topics {
			for _, p := range parts {
				sizes[topic] += p.Size
			}
		}
	})
	for topic := range sizes {
		if strings.HasPrefix(topic, "__") {
			delete(sizes, topic)
		}
	}
	return sizes, nil
}

func (d *demo) draw(resp *mirrormsg.DescribeMirrorsResponse, sizes, before map[string]int64, since time.Duration) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.SetTitle(fmt.Sprintf("mirror %s, %2.0f s of %s", demoMirror, since.Seconds(), d.duration))
	t.AppendHeader(table.Row{"topic", "source end", "copied", "lag records", "lag ms", "MB/s", "state"})
	for i := range resp.Mirrors {
		for j := range resp.Mirrors[i].Topics {
			mt := &resp.Mirrors[i].Topics[j]
			var source, copied, lag, lagMs int64
			states := map[string]int{}
			known := true
			for _, p := range mt.Partitions {
				states[p.State]++
				source += max(0, p.SourceOffset)
				copied += max(0, p.DestinationOffset)
				lag += max(0, p.Lag)
				lagMs = max(lagMs, p.LagMs)
				known = known && p.SourceOffset >= 0
			}
			rate := "-"
			if before != nil {
				rate = fmt.Sprintf("%.1f", float64(sizes[mt.TopicName]-before[mt.TopicName])/1e6/(demoSample*demoRedraw).Seconds())
			}
			row := table.Row{mt.TopicName, source, copied, lag, lagMs, rate, stateText(states)}
			if !known {
				row[1], row[3], row[4] = "-", "-", "-"
			}
			t.AppendRow(row)
		}
	}
	return t.Render()
}

// stateText is the one state of all partitions, or a count of each.
func stateText(states map[string]int) string {
	if len(states) == 1 {
		for s := range states {
			return s
		}
	}
	var parts []string
	for s, n := range states {
		parts = append(parts, fmt.Sprintf("%d %s", n, s))
	}
	return strings.Join(parts, ", ")
}
