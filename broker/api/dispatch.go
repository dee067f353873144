package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/valyala/bytebufferpool"

	"stet/broker/mirrormsg"
	"stet/broker/replica"
	"stet/zerocopy"
)

const keyAPIVersions = 18

// Output takes a response frame. What is queued must stay unchanged until Flush returns.
type Output interface {
	Bytes([]byte)
	Range(zerocopy.Range)
	Flush() error
}

// Serve decodes rest (what follows the client id of a request header), runs the
// handler and writes the answer. An error means that the connection cannot go on:
// an unknown key, a version out of range or a body that does not parse.
func (a *API) Serve(ctx context.Context, r Request, correlation int32, rest []byte, w Output) error {
	h, ok := table[r.Key]
	if !ok {
		return fmt.Errorf("API key %d is not served", r.Key)
	}
	if r.Version < h.min || r.Version > h.max {
		if r.Key == keyAPIVersions { // KIP-511: a v0 body that names the range of key 18
			return a.write(w, correlation, false, unsupportedAPIVersions())
		}
		return fmt.Errorf("%s version %d is not served, %d to %d are", kmsg.NameForKey(r.Key), r.Version, h.min, h.max)
	}
	if h.direct == nil {
		return a.serveDecoded(ctx, r, h.serve, correlation, rest, w)
	}
	body, err := afterHeader(r.Key, r.Version, r.Version >= versionProduceFlex, rest)
	if err != nil {
		return err
	}
	return h.direct(ctx, a, r.Version, correlation, body, w)
}

// serveDecoded serves a request that kmsg reads.
func (a *API) serveDecoded(ctx context.Context, r Request, serve serveFunc, correlation int32, rest []byte, w Output) error {
	msg := newRequest(r.Key)
	msg.SetVersion(r.Version)
	body, err := afterHeader(r.Key, r.Version, msg.IsFlexible(), rest)
	if err != nil {
		return err
	}
	if err := readBody(msg, body); err != nil {
		return fmt.Errorf("%s version %d does not parse: %w", kmsg.NameForKey(r.Key), r.Version, err)
	}
	r.Msg = msg
	reply, err := serve(ctx, a, &r)
	if err != nil || reply == nil {
		return err
	}
	switch reply := reply.(type) {
	case *FetchReply:
		return reply.write(w, correlation)
	case kmsg.Response:
		reply.SetVersion(r.Version)
		return a.write(w, correlation, msg.IsFlexible() && r.Key != keyAPIVersions, reply)
	}
	panic(fmt.Sprintf("BUG: handler of key %d returned a %T", r.Key, reply))
}

// afterHeader skips the tagged fields of a flexible request header.
func afterHeader(key, version int16, flexible bool, rest []byte) ([]byte, error) {
	b := kbin.Reader{Src: rest}
	skipTags(&b, flexible)
	if !b.Ok() {
		return nil, fmt.Errorf("%s version %d: the header's tagged fields do not parse", kmsg.NameForKey(key), version)
	}
	return b.Src, nil
}

// readBody decodes; a decoder that trips over hostile bytes must not end the process.
func readBody(msg kmsg.Request, body []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("malformed body: %v", p)
		}
	}()
	return msg.ReadFrom(body)
}

func newRequest(key int16) kmsg.Request {
	if r := mirrormsg.RequestForKey(key); r != nil {
		return r
	}
	return kmsg.RequestForKey(key)
}

func (a *API) write(w Output, correlation int32, flexHeader bool, resp kmsg.Response) error {
	buf := bytebufferpool.Get()
	defer bytebufferpool.Put(buf)
	b := binary.BigEndian.AppendUint32(buf.B[:0], 0) // the size, below
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	if flexHeader {
		b = append(b, 0)
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	buf.B = b
	w.Bytes(b)
	return w.Flush()
}

// codeOf finds the protocol's code of an error, and the message for people.
func codeOf(err error) (int16, string) {
	if err == nil {
		return 0, ""
	}
	var refused *replica.Refused
	if errors.As(err, &refused) {
		return refused.Code.Code, refused.Message
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		msg := err.Error()
		if msg == k.Error() {
			msg = k.Description
		}
		return k.Code, msg
	}
	var m *mirrormsg.Error
	if errors.As(err, &m) {
		return m.Code, err.Error()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return kerr.RequestTimedOut.Code, err.Error()
	}
	return kerr.UnknownServerError.Code, err.Error()
}

func code(err error) int16 { c, _ := codeOf(err); return c }

// message is nil for no error, as the wire wants it.
func message(err error) *string {
	if err == nil {
		return nil
	}
	_, m := codeOf(err)
	return &m
}
