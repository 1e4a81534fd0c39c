package architecture

import (
	"bytes"
	"os"
	"testing"
)

// TestTheProgramHasNoMethodsThatNothingCalls: if reachable code looks up methods by a name that is not constant, as text/template does,
// the linker keeps all methods of all types, including those of the clouds' 1,500 operations. To find that code, build with
// -ldflags=-dumpdep and search for ReflectMethod.
func TestTheProgramHasNoMethodsThatNothingCalls(t *testing.T) {
	binary := os.Getenv("MUSTER_BIN")
	if binary == "" {
		t.Skip("MUSTER_BIN does not name a program: run `make test`, which builds it")
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	// Names of functions stay in a stripped program. The first is called, the others are not.
	for name, linked := range map[string]bool{
		"ec2.(*Client).CreateFleet":                true,
		"ec2.(*Client).AcceptVpcPeeringConnection": false,
		"text/template.(*state).evalField":         false,
	} {
		if bytes.Contains(text, []byte(name)) != linked {
			t.Errorf("%s has %s: %t, want %t", binary, name, !linked, linked)
		}
	}
}
