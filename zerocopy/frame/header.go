package frame

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// ErrHeader says that a frame is too short for its header.
var ErrHeader = errors.New("malformed message header")

// RequestHeader is the header of a request (Kafka protocol, header versions 1 and 2).
type RequestHeader struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      string // empty when null
}

// ParseRequestHeader cuts the header off a request frame. flexible says whether key and version use
// header version 2, which ends in tagged fields.
func ParseRequestHeader(b []byte, flexible func(key, version int16) bool) (h RequestHeader, body []byte, err error) {
	r := kbin.Reader{Src: b}
	h.Key, h.Version, h.CorrelationID = r.Int16(), r.Int16(), r.Int32()
	if id := r.NullableString(); id != nil {
		h.ClientID = *id
	}
	if r.Ok() && flexible(h.Key, h.Version) {
		skipTags(&r)
	}
	if !r.Ok() {
		return h, nil, fmt.Errorf("%w: request of %d bytes", ErrHeader, len(b))
	}
	return h, r.Src, nil
}

// AppendResponseHeader appends a response header (version 0, or 1 if flexible). Responses of
// ApiVersions never have a flexible header.
func AppendResponseHeader(dst []byte, correlationID int32, flexible bool) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

// ParseResponseHeader cuts the header off a response frame.
func ParseResponseHeader(b []byte, flexible bool) (correlationID int32, body []byte, err error) {
	r := kbin.Reader{Src: b}
	correlationID = r.Int32()
	if flexible {
		skipTags(&r)
	}
	if !r.Ok() {
		return correlationID, nil, fmt.Errorf("%w: response of %d bytes", ErrHeader, len(b))
	}
	return correlationID, r.Src, nil
}

// skipTags passes over tagged fields (KIP-482).
func skipTags(r *kbin.Reader) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		r.Uvarint()
		r.Span(int(r.Uvarint()))
	}
}
