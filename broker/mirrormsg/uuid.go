package mirrormsg

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

var uuidText = base64.RawURLEncoding.Strict()

// UUIDString is Kafka's text of a uuid: URL base64, unpadded, 22 characters.
func UUIDString(id [16]byte) string { return uuidText.EncodeToString(id[:]) }

// ParseUUID reads what UUIDString writes. As Kafka does it accepts text without
// regard to the unused bits of the last character.
func ParseUUID(s string) (id [16]byte, err error) {
	if len(s) != 22 {
		return id, fmt.Errorf("uuid %q: %d characters instead of 22", s, len(s))
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("uuid %q: not URL base64", s)
	}
	return [16]byte(b), nil
}

// RandomUUID makes a version 4 uuid. As in Kafka its text does not begin with
// "-", which command line tools would take for a flag, and it is not zero or one.
func RandomUUID() [16]byte {
	for {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails, crypto/rand
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if UUIDString(id)[0] != '-' {
			return id
		}
	}
}
