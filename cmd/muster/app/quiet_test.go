package app

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/klog/v2/textlogger"
)

// TestProbesAreQuiet: lines of the health endpoints are left out at the default verbosity; others name the file that writes them.
func TestProbesAreQuiet(t *testing.T) {
	var out bytes.Buffer
	l := quietly(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
	l.WithName("controller-runtime").WithName("healthz").WithValues("of", "a test").Info("healthz check failed")
	if out.Len() > 0 {
		t.Errorf("a probe wrote %s", &out)
	}
	l.WithName("queues").WithValues("of", "a test").WithCallDepth(0).Info("Something else")
	if line := out.String(); !strings.Contains(line, "quiet_test.go") || !strings.Contains(line, "Something else") {
		t.Errorf("another line is %q", line)
	}
}
