package invariant

import "fmt"

// Check panics with a BUG text when ok is false and invariants are enabled.
// Guard expensive conditions with Enabled at the call.
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("BUG: " + fmt.Sprintf(format, args...))
	}
}

// Mangle overwrites b, so that a reader that kept a released buffer is found.
func Mangle(b []byte) {
	if !Enabled {
		return
	}
	b = b[:cap(b)]
	for i := range b {
		b[i] = 0xDD
	}
}
