package dumplog

import "testing"

// The wanted ones are what `new String(bytes, UTF_8)` of JDK 21 returned.
func TestTextAsJava(t *testing.T) {
	for in, want := range map[string]string{
		"":                     "",
		"aé€😀":                 "aé€😀",
		"\x80\xbf":             "��",
		"\xc0\x80":             "��",
		"\xc3":                 "�",
		"\xc3(":                "�(",
		"\xe2\x82":             "�",
		"\xe2\x82(":            "�(",
		"\xe2(\x82":            "�(�",
		"\xe0\x80\x80":         "���",
		"\xed\xa0\x80":         "�",
		"\xed\xa0(":            "�(",
		"\xf0\x9f\x98":         "�",
		"\xf0\x9f\x98(":        "�(",
		"\xf0\x9f":             "�",
		"\xf0\x80\x80\x80":     "����",
		"\xf4\x90\x80\x80":     "����",
		"\xf5\x80\x80\x80":     "����",
		"\xff\xfe":             "��",
		"\xf0\x9f\xe2\x82\xac": "�€",
	} {
		if got := text([]byte(in)); got != want {
			t.Errorf("%x: %q, want %q", in, got, want)
		}
	}
}
