package loadgen

import (
	"fmt"

	"stet/broker/mirrormsg"
)

// refused is the error of an answer, with the server's words where it has any.
func refused(code int16, message *string) error {
	err := mirrormsg.ErrorForCode(code)
	if err == nil {
		return nil
	}
	if message != nil && *message != "" {
		return fmt.Errorf("%s: %s", mirrormsg.CodeName(code), *message)
	}
	return err
}

// refusedTopic is the same for one topic of an answer.
func refusedTopic(r *mirrormsg.MirrorTopicResult) error {
	if err := refused(r.ErrorCode, r.ErrorMessage); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	return nil
}
