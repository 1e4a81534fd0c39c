package journal

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// sink returns a context whose log is appended to lines.
func sink(lines *[]string) context.Context {
	return log.IntoContext(context.Background(), funcr.New(func(_, args string) { *lines = append(*lines, args) }, funcr.Options{}))
}

// TestALoopDoesNotFloodTheLog: omitted lines are counted, and other objects are not affected.
func TestALoopDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		ctx := sink(&lines)
		for range 600 { // ten minutes
			Write(ctx, "Launching machines", "ns/loop", Request, "ns/loop", Count, 4)
			<-time.After(time.Second)
		}
		if n := len(lines); n < 40 || n > 55 {
			t.Errorf("a loop wrote %d lines in ten minutes", n)
		}
		before := len(lines)
		Write(ctx, "Launching machines", "ns/other", Request, "ns/other", Count, 4)
		if len(lines) != before+1 || strings.Contains(lines[before], LeftOut) {
			t.Errorf("the line of another object is missing, or has the loop's count: %v", lines[before:])
		}
		if !strings.Contains(strings.Join(lines, "\n"), fmt.Sprintf("%q=5", LeftOut)) {
			t.Errorf("no line says how many were left out:\n%s", strings.Join(lines[:8], "\n"))
		}
		<-time.After(time.Hour)
		Write(ctx, "Launching machines", "ns/last")
		if n := len(bound.seen); n != 1 {
			t.Errorf("%d lines are remembered", n)
		}
	})
}

// TestNoSecretIsLogged, whatever the errors of clouds contain.
func TestNoSecretIsLogged(t *testing.T) {
	const secret = "eyJhbGciOiJSUzI1NiIs.x-Y_z"
	for _, message := range []string{
		"Get https://10.0.0.1: Authorization: Bearer " + secret + " was refused", "token: " + secret, `{"token":"` + secret + `"}`,
		"password=" + secret, "users:\n- user:\n    client-key-data: " + secret, "X-Amz-Security-Token=" + secret + "&X-Amz-Signature=" + secret,
		"-----BEGIN RSA PRIVATE KEY-----\n" + secret + "\n-----END RSA PRIVATE KEY-----", "-----BEGIN EC PRIVATE KEY-----\n" + secret,
	} {
		var lines []string
		Write(sink(&lines), "A launch was refused", message, Cause, message)
		if len(lines) != 1 || strings.Contains(lines[0], secret) || !strings.Contains(lines[0], "[redacted]") {
			t.Errorf("%s", lines)
		}
	}
	const plain = "group gpu: 3 of 4 machines were made: InsufficientInstanceCapacity (Stockout): launch uid-1 has no token of its own"
	if got := Redact(plain); got != plain {
		t.Errorf("%q became %q", plain, got)
	}
}

func TestALineIsShort(t *testing.T) {
	var machines []string
	for i := range 1000 {
		machines = append(machines, fmt.Sprint("i-", i))
	}
	var lines []string
	Write(sink(&lines), "Terminating machines", "short", Machines, machines, Cause, strings.Repeat("x", 10_000), Price, "")
	if len(lines) != 1 || len(lines[0]) > 1500 || !strings.Contains(lines[0], "and 980 more") || strings.Contains(lines[0], Price) {
		t.Errorf("%d characters: %.300s", len(lines[0]), lines[0])
	}
}
