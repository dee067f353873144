package mirrormsg

//go:generate ./generate.sh

import (
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The functions that generated.go calls. All our messages are flexible from
// version 0 on; the parameter is what the generator passes.

func readBool(b *kbin.Reader) bool     { return b.Bool() }
func readInt8(b *kbin.Reader) int8     { return b.Int8() }
func readInt16(b *kbin.Reader) int16   { return b.Int16() }
func readInt32(b *kbin.Reader) int32   { return b.Int32() }
func readInt64(b *kbin.Reader) int64   { return b.Int64() }
func readUuid(b *kbin.Reader) [16]byte { return b.Uuid() } //nolint:revive // the generator's name

func appendBool(dst []byte, v bool) []byte     { return kbin.AppendBool(dst, v) }
func appendInt8(dst []byte, v int8) []byte     { return kbin.AppendInt8(dst, v) }
func appendInt16(dst []byte, v int16) []byte   { return kbin.AppendInt16(dst, v) }
func appendInt32(dst []byte, v int32) []byte   { return kbin.AppendInt32(dst, v) }
func appendInt64(dst []byte, v int64) []byte   { return kbin.AppendInt64(dst, v) }
func appendUuid(dst []byte, v [16]byte) []byte { return kbin.AppendUuid(dst, v) } //nolint:revive // the generator's name

func readString(b *kbin.Reader, dst *string, flexible, unsafe bool) {
	switch {
	case flexible && unsafe:
		*dst = b.UnsafeCompactString()
	case flexible:
		*dst = b.CompactString()
	case unsafe:
		*dst = b.UnsafeString()
	default:
		*dst = b.String()
	}
}

func readNullableString(b *kbin.Reader, dst **string, flexible, unsafe bool) {
	switch {
	case flexible && unsafe:
		*dst = b.UnsafeCompactNullableString()
	case flexible:
		*dst = b.CompactNullableString()
	case unsafe:
		*dst = b.UnsafeNullableString()
	default:
		*dst = b.NullableString()
	}
}

func appendString(dst []byte, s string, flexible bool) []byte {
	if flexible {
		return kbin.AppendCompactString(dst, s)
	}
	return kbin.AppendString(dst, s)
}

func appendNullableString(dst []byte, s *string, flexible bool) []byte {
	if flexible {
		return kbin.AppendCompactNullableString(dst, s)
	}
	return kbin.AppendNullableString(dst, s)
}

func readArrayLen(b *kbin.Reader, flexible bool) int32 {
	if flexible {
		return b.CompactArrayLen()
	}
	return b.ArrayLen()
}

func appendArrayLen(dst []byte, n int, flexible bool) []byte {
	if flexible {
		return kbin.AppendCompactArrayLen(dst, n)
	}
	return kbin.AppendArrayLen(dst, n)
}

func appendNullableArrayLen(dst []byte, n int, isNil, flexible bool) []byte {
	if flexible {
		return kbin.AppendCompactNullableArrayLen(dst, n, isNil)
	}
	return kbin.AppendNullableArrayLen(dst, n, isNil)
}

func internalReadTags(b *kbin.Reader, dst *kmsg.Tags) { *dst = kmsg.ReadTags(b) }

func appendTags(dst []byte, t *kmsg.Tags) []byte {
	dst = kbin.AppendUvarint(dst, uint32(t.Len()))
	return t.AppendEach(dst)
}
