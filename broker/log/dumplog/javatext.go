package dumplog

import "strings"

// text is what Java makes of bytes that are read as UTF-8. It differs from Go where they are not: a
// sequence that breaks off is one replacement character, not one per byte, and so is a surrogate.
func text(b []byte) string {
	var s strings.Builder
	s.Grow(len(b))
	for len(b) > 0 {
		n, ok := sequence(b)
		if ok {
			s.Write(b[:n])
		} else {
			s.WriteRune('\uFFFD')
		}
		b = b[n:]
	}
	return s.String()
}

// sequence is the length of the first character, or of what one replacement stands for.
func sequence(b []byte) (n int, ok bool) {
	c := b[0]
	follows := func(i int, low, high byte) bool { return i < len(b) && low <= b[i] && b[i] <= high }
	low, high := byte(0x80), byte(0xbf) // of the second byte
	switch {
	case c < 0x80:
		return 1, true
	case c >= 0xc2 && c <= 0xdf:
		if follows(1, low, high) {
			return 2, true
		}
		return 1, false
	case c&0xf0 == 0xe0:
		if c == 0xe0 {
			low = 0xa0
		}
		switch {
		case !follows(1, low, high):
			return 1, false
		case !follows(2, 0x80, 0xbf):
			return 2, false
		}
		return 3, c != 0xed || b[1] < 0xa0
	case c >= 0xf0 && c <= 0xf4:
		switch c {
		case 0xf0:
			low = 0x90
		case 0xf4:
			high = 0x8f
		}
		for i := 1; i < 4; i++ {
			if !follows(i, low, high) {
				return i, false
			}
			low, high = 0x80, 0xbf
		}
		return 4, true
	}
	return 1, false
}
