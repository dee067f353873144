package mirror

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// How a failed partition comes back.
type failureKind int8

const (
	// failCounted is retried with a growing back-off, at most so many times.
	failCounted failureKind = iota
	// failPatient is retried for ever, with a back-off that grows only to seconds: a leader is being elected at the
	// source, metadata have not spread, rights are missing.
	failPatient
	// failSource is retried as soon as a probe reaches the source, and uses up no attempts.
	failSource
	// failOperator needs an operator: attempt -1.
	failOperator
	// failIdentity is failOperator for a source that is another cluster than it should be: once the mirror's configuration
	// leads to the right one again, the operator has done what was needed.
	failIdentity
)

// failure is why a partition becomes FAILED.
type failure struct {
	kind failureKind
	// broker is the source broker that has to be reached again, -1 for any; of failSource.
	broker int32
	err    error
	// generation of the mirror's configuration that led to the wrong cluster, and the id that it should have had, "" if none
	// was known yet; of failIdentity.
	generation uint64
	want       string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func counted(err error) error  { return &failure{kind: failCounted, broker: -1, err: err} }
func patient(err error) error  { return &failure{kind: failPatient, broker: -1, err: err} }
func operator(err error) error { return &failure{kind: failOperator, broker: -1, err: err} }
func unreachable(broker int32, err error) error {
	return &failure{kind: failSource, broker: broker, err: err}
}

// final says that only an operator can help: attempt -1.
func (f *failure) final() bool { return f.kind == failOperator || f.kind == failIdentity }

// maxPatience bounds the back-off of failPatient.
const maxPatience = 5 * time.Second

// Reasons to give up a step without failing the partition.
var (
	// errSuperseded: the intent has changed, or this broker does not lead any more.
	errSuperseded = errors.New("superseded")
	// errReread: somebody else has written the state.
	errReread = errors.New("state was written by somebody else")
)

// classify makes a failure of any error of a step.
func classify(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{kind: failCounted, broker: -1, err: err}
}

// sourceError classifies the error of a question to the source: codes of the partition are
// counted or patient, everything else means that it was not reached.
func sourceError(broker int32, err error) error {
	var ke *kerr.Error
	switch {
	case errors.Is(err, context.Canceled):
		return errSuperseded
	case errors.As(err, &ke):
		return codeError(err)
	}
	return unreachable(broker, err)
}

// codeError classifies an error code of the source.
func codeError(err error) error {
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.GroupAuthorizationFailed):
		return patient(err)
	case kerr.IsRetriable(err):
		return patient(err)
	}
	return counted(err)
}

// backoff is the pause before attempt n (from 0): doubling up to a limit, with full jitter.
func backoff(s Settings, n int) time.Duration {
	d := s.RetryInitial
	for i := 0; i < n && d < s.RetryMax; i++ {
		d *= 2
	}
	d = min(d, s.RetryMax)
	if d <= 0 {
		return 0
	}
	return rand.N(d) + 1
}
