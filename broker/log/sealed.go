package log

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
)

// Text files of our own formats end with a line that is a CRC-32C of all lines before it. Kafka's formats have no room for one.

const sealKey = "crc32c: "

func sealText(p []byte) []byte {
	return fmt.Appendf(p, "%s%08x\n", sealKey, crc32.Checksum(p, castagnoli))
}

// openText is the text without its last line, which must be right.
func openText(p []byte) ([]byte, error) {
	at := bytes.LastIndex(p, []byte("\n"+sealKey))
	if at < 0 || !bytes.Equal(sealText(bytes.Clone(p[:at+1])), p) {
		return nil, errors.New("its checksum is missing or wrong")
	}
	return p[:at+1], nil
}
