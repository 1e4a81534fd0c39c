//go:build modules

package components

// k8s.io/kubernetes requires its staging modules at v0.0.0, a version that does
// not exist. Those that this binary is built from are required at their real
// version; this import has `go mod tidy` require the one more that `go list -m
// all` needs, and is never compiled.
import _ "k8s.io/sample-apiserver/pkg/apis/wardle"
