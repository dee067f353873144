package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLogDirs (key 35), versions 1-4.
//
// One result per log directory with the sizes of the partitions asked for (null:
// all) and, from version 4, of the volume (KIP-827). A directory that has failed has the error KAFKA_STORAGE_ERROR
// and no partitions.
var describeLogDirs = handler{key: 35, min: 1, max: 4, serve: serveDescribeLogDirs}

func serveDescribeLogDirs(_ context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.DescribeLogDirsRequest)
	type tp struct {
		topic     string
		partition int32
	}
	var asked map[tp]bool
	if req.Topics != nil {
		asked = map[tp]bool{}
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				asked[tp{t.Topic, p}] = true
			}
		}
	}
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	for _, d := range a.Logs.DirSizes() {
		rd := kmsg.NewDescribeLogDirsResponseDir()
		rd.Dir, rd.TotalBytes, rd.UsableBytes = d.Dir, d.Total, d.Usable
		if d.Err != nil { // as Kafka has it: the code, no sizes, no partitions
			rd.ErrorCode, rd.TotalBytes, rd.UsableBytes = kerr.KafkaStorageError.Code, -1, -1
			resp.Dirs = append(resp.Dirs, rd)
			continue
		}
		at := map[string]int{}
		for _, p := range d.Partitions {
			if asked != nil && !asked[tp{p.Topic, p.Partition}] {
				continue
			}
			i, ok := at[p.Topic]
			if !ok {
				i = len(rd.Topics)
				at[p.Topic] = i
				t := kmsg.NewDescribeLogDirsResponseDirTopic()
				t.Topic = p.Topic
				rd.Topics = append(rd.Topics, t)
			}
			rp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			rp.Partition, rp.Size = p.Partition, p.Size
			rd.Topics[i].Partitions = append(rd.Topics[i].Partitions, rp)
		}
		resp.Dirs = append(resp.Dirs, rd)
	}
	return resp, nil
}
