package state

import "testing"

// TestTokens: a replacement is a call of its own, and its machines belong to the attempt that it completes.
func TestTokens(t *testing.T) {
	for _, tc := range []struct{ name, token, attempt, uid string }{
		{"an attempt", Token("aa-bb", 3), "aa-bb-3", "aa-bb"},
		{"a replacement", "aa-bb-3r12", "aa-bb-3", "aa-bb"},
		{"no number of an attempt", "aa-xr1", "aa-xr1", "aa"},
		{"no number of a replacement", "aa-3rx", "aa-3rx", "aa"},
		{"no request", "3r1", "3r1", "3r1"},
	} {
		if attempt, uid := AttemptToken(tc.token), string(TokenUID(tc.token)); attempt != tc.attempt || uid != tc.uid {
			t.Errorf("%s: %s is of attempt %s and request %s, want %s and %s", tc.name, tc.token, attempt, uid, tc.attempt, tc.uid)
		}
	}
}
