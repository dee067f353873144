package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
)

func (m mirrorClient) pauseOrResume() error {
	names, err := m.expand()
	if err != nil {
		return err
	}
	var results []mirrormsg.MirrorTopicResult
	word := "Paused mirroring for"
	if m.f.pause {
		req := mirrormsg.NewPtrPauseMirrorTopicsRequest()
		req.MirrorName = m.f.mirror
		for _, n := range names {
			t := mirrormsg.NewPauseMirrorTopicsRequestTopic()
			t.TopicName = n
			req.Topics = append(req.Topics, t)
		}
		resp, err := req.RequestWith(m.cmd.Context(), m.cl)
		if err != nil {
			return err
		}
		if err := refused(resp.ErrorCode, resp.ErrorMessage); err != nil {
			return err
		}
		results = resp.Topics
	} else {
		word = "Resumed mirroring for"
		req := mirrormsg.NewPtrResumeMirrorTopicsRequest()
		req.MirrorName = m.f.mirror
		for _, n := range names {
			t := mirrormsg.NewResumeMirrorTopicsRequestTopic()
			t.TopicName = n
			req.Topics = append(req.Topics, t)
		}
		resp, err := req.RequestWith(m.cmd.Context(), m.cl)
		if err != nil {
			return err
		}
		if err := refused(resp.ErrorCode, resp.ErrorMessage); err != nil {
			return err
		}
		results = resp.Topics
	}
	done, failed := m.results(results)
	if len(done) > 0 || failed == nil {
		fmt.Printf("%s %d topic(s) in mirror %s: [%s]\n", word, len(done), m.f.mirror, strings.Join(done, ", "))
	}
	return failed
}

// expand resolves patterns against the topics of the mirror; names stay as they
// are, so that the server says what is wrong with them.
func (m mirrorClient) expand() ([]string, error) {
	names, patterns := split(m.f.topics)
	if len(patterns) == 0 {
		return names, nil
	}
	resp, err := describeMirrors(m.cmd.Context(), m.cl, m.f.mirror)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, n := range names {
		seen[n] = true
	}
	for _, p := range patterns {
		re, err := regexp.Compile("^(?:" + p + ")$")
		if err != nil {
			return nil, usagef("%q is neither a topic name nor an RE2 pattern: %v", p, err)
		}
		for _, mm := range resp.Mirrors {
			for _, t := range mm.Topics {
				if re.MatchString(t.TopicName) && !seen[t.TopicName] {
					seen[t.TopicName] = true
					names = append(names, t.TopicName)
				}
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no topic of mirror %s matches %s", m.f.mirror, m.f.topics)
	}
	return names, nil
}

// describeMirrors asks for one mirror, or all with an empty name.
func describeMirrors(ctx context.Context, cl *kgo.Client, mirror string) (*mirrormsg.DescribeMirrorsResponse, error) {
	req := mirrormsg.NewPtrDescribeMirrorsRequest()
	if mirror != "" {
		req.MirrorNames = []string{mirror}
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	if err := refused(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	for i := range resp.Mirrors {
		if err := refused(resp.Mirrors[i].ErrorCode, nil); err != nil {
			return nil, fmt.Errorf("mirror %s: %w", resp.Mirrors[i].MirrorName, err)
		}
	}
	return resp, nil
}

func columns() *tabwriter.Writer { return tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0) }

func (m mirrorClient) list() error {
	resp, err := mirrormsg.NewPtrListMirrorsRequest().RequestWith(m.cmd.Context(), m.cl)
	if err != nil {
		return err
	}
	if err := refused(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return err
	}
	w := columns()
	fmt.Fprintln(w, "MIRROR\tTOPICS\tCLUSTER-ID\tBOOTSTRAP-SERVER")
	for i := range resp.Mirrors {
		r := &resp.Mirrors[i]
		if m.f.mirror != "" && r.MirrorName != m.f.mirror {
			continue
		}
		id := r.SourceClusterID
		if id == "" {
			id = "-"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", r.MirrorName, r.TopicCount, id, r.SourceBootstrap)
	}
	return w.Flush()
}

// partitionRow is one object of --describe --json (CLI.md).
type partitionRow struct {
	Mirror            string  `json:"mirror"`
	Topic             string  `json:"topic"`
	TopicID           string  `json:"topicId"`
	Partition         int32   `json:"partition"`
	SourceOffset      *int64  `json:"sourceOffset"`
	DestinationOffset *int64  `json:"destinationOffset"`
	Lag               *int64  `json:"lag"`
	LagMs             *int64  `json:"lagMs"`
	LagAgeMs          *int64  `json:"lagAgeMs"`
	State             string  `json:"state"`
	LastMirrorEpoch   *int64  `json:"lastMirrorEpoch"`
	LastMirrorOffset  *int64  `json:"lastMirrorOffset"`
	RetryAttempt      int16   `json:"retryAttempt"`
	Error             *string `json:"error"`

	code int16 // of Error
}

// hasFailed says whether --failed lists the partition: it is FAILED, or something here keeps it from getting on although
// its state, the last one that could be stored, does not say so.
func (r *partitionRow) hasFailed() bool {
	return r.State == "FAILED" || r.code == kerr.KafkaStorageError.Code || r.code == kerr.CoordinatorNotAvailable.Code
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func rowsOf(resp *mirrormsg.DescribeMirrorsResponse) []partitionRow {
	rows := []partitionRow{}
	for i := range resp.Mirrors {
		mm := &resp.Mirrors[i]
		for j := range mm.Topics {
			t := &mm.Topics[j]
			for k := range t.Partitions {
				p := &t.Partitions[k]
				rows = append(rows, partitionRow{
					Mirror: mm.MirrorName, Topic: t.TopicName, TopicID: mirrormsg.UUIDString(t.TopicID), Partition: p.PartitionIndex,
					SourceOffset: known(p.SourceOffset), DestinationOffset: known(p.DestinationOffset), Lag: known(p.Lag), LagMs: known(p.LagMs),
					LagAgeMs: known(p.LagAgeMs), State: p.State, LastMirrorEpoch: known(int64(p.LastMirrorEpoch)),
					LastMirrorOffset: known(p.LastMirrorOffset), RetryAttempt: p.RetryAttempt, Error: p.ErrorMessage, code: p.ErrorCode,
				})
			}
		}
	}
	return rows
}

func orDash(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func (m mirrorClient) describe() error {
	if m.f.wait != "" {
		if err := m.waitFor(); err != nil {
			return err
		}
	}
	resp, err := describeMirrors(m.cmd.Context(), m.cl, m.f.mirror)
	if err != nil {
		return err
	}
	rows, err := m.selected(rowsOf(resp))
	if err != nil {
		return err
	}
	if m.f.failed {
		kept := rows[:0]
		for _, r := range rows {
			if r.hasFailed() {
				kept = append(kept, r)
			}
		}
		rows = kept
	}
	if m.f.asJSON {
		return json.NewEncoder(os.Stdout).Encode(rows)
	}
	w := columns()
	if m.f.failed {
		fmt.Fprintln(w, "MIRROR\tTOPIC\tPARTITION\tRETRY\tERROR")
		for _, r := range rows {
			text := "-"
			if r.Error != nil {
				text = *r.Error
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", r.Mirror, r.Topic, r.Partition, r.RetryAttempt, text)
		}
	} else {
		fmt.Fprintln(w, "MIRROR\tTOPIC\tPARTITION\tSOURCE-OFFSET\tDESTINATION-OFFSET\tLAG\tSTATE")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Mirror, r.Topic, r.Partition, orDash(r.SourceOffset), orDash(r.DestinationOffset), orDash(r.Lag), r.State)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if resp.ErrorMessage != nil && *resp.ErrorMessage != "" { // why nothing runs, a line per mirror
		fmt.Println(*resp.ErrorMessage)
	}
	return nil
}

const (
	waitPoll  = 50 * time.Millisecond
	mostNamed = 10 // partitions in an error
)

// selected keeps the rows of --topics, all without it.
func (m mirrorClient) selected(rows []partitionRow) ([]partitionRow, error) {
	if m.f.topics == "" {
		return rows, nil
	}
	names, patterns := split(m.f.topics)
	for i, n := range names {
		names[i] = regexp.QuoteMeta(n)
	}
	re, err := regexp.Compile("^(?:" + strings.Join(append(names, patterns...), "|") + ")$")
	if err != nil {
		return nil, usagef("--topics %q: %v", m.f.topics, err)
	}
	kept := rows[:0]
	for _, r := range rows {
		if re.MatchString(r.Topic) {
			kept = append(kept, r)
		}
	}
	return kept, nil
}

// nothingToCome says that there is nothing that --wait could wait for: there is no mirror, or none of them has topics or starts
// those that match mirror.topics.include, where starts are kept that a source could not answer yet.
func (m mirrorClient) nothingToCome(ctx context.Context, resp *mirrormsg.DescribeMirrorsResponse) error {
	if len(resp.Mirrors) == 0 {
		return errors.New("there is nothing to wait for: there is no mirror")
	}
	var names []string
	for i := range resp.Mirrors {
		mm := &resp.Mirrors[i]
		if len(mm.Topics) > 0 {
			return nil // its partitions, or others of --topics, may be on their way
		}
		req := kmsg.NewPtrDescribeConfigsRequest()
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = mirrormsg.ConfigResourceMirror, mm.MirrorName, []string{"mirror.topics.include"}
		req.Resources = append(req.Resources, r)
		answer, err := req.RequestWith(ctx, m.cl)
		if err != nil {
			return err
		}
		for j := range answer.Resources {
			for _, c := range answer.Resources[j].Configs {
				if c.Value == nil || *c.Value != "" {
					return nil
				}
			}
		}
		names = append(names, mm.MirrorName)
	}
	return fmt.Errorf("there is nothing to wait for: no topic was started in mirror %s (stet mirrors --start)", strings.Join(names, ", "))
}

// waitFor returns when every listed partition is where --wait wants it.
func (m mirrorClient) waitFor() error {
	want := m.f.wanted()
	ctx, cancel := context.WithTimeout(m.cmd.Context(), m.f.timeout)
	defer cancel()
	tick := time.NewTicker(waitPoll)
	defer tick.Stop()
	var missing []string
	for {
		resp, err := describeMirrors(ctx, m.cl, m.f.mirror)
		if err == nil {
			missing = missing[:0]
			rows, err := m.selected(rowsOf(resp))
			if err != nil {
				return err
			}
			for _, r := range rows {
				ok := r.State == want
				if want == lagZero {
					ok = r.State == "MIRRORING" && r.Lag != nil && *r.Lag == 0
				}
				if !ok {
					missing = append(missing, fmt.Sprintf("%s-%d %s lag %s", r.Topic, r.Partition, r.State, orDash(r.Lag)))
				}
			}
			if len(rows) == 0 {
				missing = append(missing, "no partition is listed yet")
				if err := m.nothingToCome(ctx, resp); err != nil && ctx.Err() == nil {
					return err
				}
			}
			if len(missing) == 0 {
				return nil
			}
		} else if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if n := len(missing) - mostNamed; n > 0 {
				missing = append(missing[:mostNamed], fmt.Sprintf("and %d more", n))
			}
			return fmt.Errorf("not %s after %s: %s", m.f.wait, m.f.timeout, strings.Join(missing, "; "))
		}
	}
}
