package app

import "github.com/go-logr/logr"

// quiet writes the lines of controller-runtime's health endpoints at a higher verbosity: until the caches have synced, each probe of
// the kubelet would write that a check failed, which hides everything else.
type quiet struct {
	logr.LogSink
	// probes: this sink is that of the health endpoints.
	probes bool
}

// probeVerbosity is by how much.
const probeVerbosity = 2

func quietly(l logr.Logger) logr.Logger { return l.WithSink(quiet{LogSink: l.GetSink()}) }

// Enabled implements logr.LogSink.
func (q quiet) Enabled(level int) bool {
	if q.probes {
		level += probeVerbosity
	}
	return q.LogSink.Enabled(level)
}

// WithName implements logr.LogSink.
func (q quiet) WithName(name string) logr.LogSink {
	return quiet{LogSink: q.LogSink.WithName(name), probes: q.probes || name == "healthz"}
}

// WithValues implements logr.LogSink.
func (q quiet) WithValues(keysAndValues ...any) logr.LogSink {
	q.LogSink = q.LogSink.WithValues(keysAndValues...)
	return q
}

// WithCallDepth implements logr.CallDepthLogSink.
func (q quiet) WithCallDepth(depth int) logr.LogSink {
	if sink, ok := q.LogSink.(logr.CallDepthLogSink); ok {
		q.LogSink = sink.WithCallDepth(depth)
	}
	return q
}
