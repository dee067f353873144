package api

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
)

// TestProducerIDsWithoutMetadata: a producer that needs a new block of ids is told what it retries.
func TestProducerIDsWithoutMetadata(t *testing.T) {
	failure := errors.New("the metadata cannot be written")
	a := &API{Logger: slog.New(slog.DiscardHandler), ProducerIDs: &ProducerIDs{Allocate: func(context.Context, int64) (int64, error) { return 5000, failure }}}
	ask := func() *kmsg.InitProducerIDResponse {
		t.Helper()
		reply, err := serveInitProducerID(context.Background(), a, &Request{Msg: kmsg.NewPtrInitProducerIDRequest()})
		if err != nil {
			t.Fatal(err)
		}
		return reply.(*kmsg.InitProducerIDResponse)
	}
	if r := ask(); r.ErrorCode != kerr.CoordinatorLoadInProgress.Code || r.ProducerID != -1 || !kerr.CoordinatorLoadInProgress.Retriable {
		t.Errorf("%s, id %d", mirrormsg.CodeName(r.ErrorCode), r.ProducerID)
	}
	failure = nil
	for i := range int64(blockSize) {
		if r := ask(); r.ErrorCode != 0 || r.ProducerID != 5000+i || r.ProducerEpoch != 0 {
			t.Fatalf("%s, id %d", mirrormsg.CodeName(r.ErrorCode), r.ProducerID)
		}
	}
	failure = context.DeadlineExceeded
	if r := ask(); r.ErrorCode != kerr.CoordinatorLoadInProgress.Code {
		t.Errorf("%s", mirrormsg.CodeName(r.ErrorCode))
	}
}
