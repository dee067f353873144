package mirrormsg

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Error is an error code of the mirror requests: 1279 + n of SPEC section 9. Known
// Kafka codes are used wherever one fits; those are *kerr.Error.
type Error struct {
	Code        int16
	Message     string // the name, as in kerr.Error
	Retriable   bool
	Description string
}

// Error implements error as kerr.Error does: name and description.
func (e *Error) Error() string { return e.Message + ": " + e.Description }

// The error codes.
var (
	InvalidMirrorName        = &Error{1279, "INVALID_MIRROR_NAME", false, "The mirror name is not legal."}
	MirrorAlreadyExists      = &Error{1280, "MIRROR_ALREADY_EXISTS", false, "A mirror of this name already exists."}
	UnknownMirror            = &Error{1281, "UNKNOWN_MIRROR", false, "There is no mirror of this name or id."}
	TopicAlreadyInMirror     = &Error{1282, "TOPIC_ALREADY_IN_MIRROR", false, "The topic already belongs to another mirror."}
	TopicNotInMirror         = &Error{1283, "TOPIC_NOT_IN_MIRROR", false, "The topic does not belong to this mirror."}
	MirrorTopicAlreadyPaused = &Error{1284, "MIRROR_TOPIC_ALREADY_PAUSED", false, "The mirror topic is paused already."}
	MirrorTopicNotPaused     = &Error{1285, "MIRROR_TOPIC_NOT_PAUSED", false, "The mirror topic is not paused."}
	MirrorTopicBeingStopped  = &Error{1286, "MIRROR_TOPIC_BEING_STOPPED", true, "The mirror topic is being stopped."}
	MirrorNotEmpty           = &Error{1287, "MIRROR_NOT_EMPTY", false, "The mirror has topics that are not stopped."}
	MirrorAuthorization      = &Error{1288, "MIRROR_AUTHORIZATION_FAILED", false, "The client has no right to do this with the mirror."}
	InvalidMirrorState       = &Error{1289, "INVALID_MIRROR_STATE", false, "The state of the mirror topic does not allow this."}
	MirrorTopicNotStopped    = &Error{1290, "MIRROR_TOPIC_NOT_STOPPED", false, "The mirror topic is not stopped."}
)

var byCode = [...]*Error{
	InvalidMirrorName, MirrorAlreadyExists, UnknownMirror, TopicAlreadyInMirror, TopicNotInMirror, MirrorTopicAlreadyPaused,
	MirrorTopicNotPaused, MirrorTopicBeingStopped, MirrorNotEmpty, MirrorAuthorization, InvalidMirrorState, MirrorTopicNotStopped,
}

// ErrorForCode returns the error of a code, of this package or Kafka's; nil for 0.
func ErrorForCode(code int16) error {
	if i := int(code) - 1279; i >= 0 && i < len(byCode) {
		return byCode[i]
	}
	if err := kerr.ErrorForCode(code); err != nil {
		return err
	}
	return nil
}

// CodeName names a code, of this package or Kafka's; "NONE" for 0.
func CodeName(code int16) string {
	switch err := ErrorForCode(code).(type) { //nolint:errorlint // never wrapped
	case *Error:
		return err.Message
	case *kerr.Error:
		return err.Message
	}
	return "NONE"
}

// CodeForError is the code that err travels as: the one it wraps, 0 for nil and
// UNKNOWN_SERVER_ERROR (-1) for anything that is no protocol error.
func CodeForError(err error) int16 {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // walks the chain itself
		case *Error:
			return e.Code
		case *kerr.Error:
			return e.Code
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				if c := CodeForError(inner); c != kerr.UnknownServerError.Code {
					return c
				}
			}
			return kerr.UnknownServerError.Code
		case interface{ Unwrap() error }:
			if err = e.Unwrap(); err == nil {
				return kerr.UnknownServerError.Code
			}
		default:
			return kerr.UnknownServerError.Code
		}
	}
	return 0
}

// WireError is a protocol error with a text of its own for the error message
// field of a response. Base is an *Error or a *kerr.Error.
type WireError struct {
	Base error
	Text string
}

// Errorf makes a WireError of base.
func Errorf(base error, format string, args ...any) *WireError {
	return &WireError{Base: base, Text: fmt.Sprintf(format, args...)}
}

func (e *WireError) Error() string { return CodeName(CodeForError(e.Base)) + ": " + e.Text }

// Unwrap returns the protocol error.
func (e *WireError) Unwrap() error { return e.Base }

// CodeAndMessage splits err for a response: 0 and nil for nil.
func CodeAndMessage(err error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	var text string
	switch e := err.(type) { //nolint:errorlint // a wrapping error's own text is the better message
	case *WireError:
		text = e.Text
	case *Error:
		text = e.Description
	case *kerr.Error:
		text = e.Description
	default:
		text = err.Error()
	}
	return CodeForError(err), &text
}
