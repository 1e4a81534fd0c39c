package architecture

import (
	"slices"
	"testing"
)

// callers are what a call to Google can be made with, beside its messages.
var callers = []string{
	"cloud.google.com/go/compute/apiv1", "google.golang.org/api/option", "google.golang.org/api/transport", "google.golang.org/api/transport/http",
	"google.golang.org/api/googleapi", "golang.org/x/oauth2", "golang.org/x/oauth2/google", "net/http", "net/url",
}

// TestGoogleIsCalledInOnePlace: each call to Google Cloud has the deadline, the turn, the permit, the class of its error and the
// metric that package api gives it.
func TestGoogleIsCalledInOnePlace(t *testing.T) {
	const adapter, api = "cloudprovider/gcp", "cloudprovider/gcp/api"
	for _, dir := range folders(t, adapter) {
		if dir == api {
			continue
		}
		for name, file := range parse(t, dir) {
			for _, path := range imports(t, file) {
				if slices.Contains(callers, path) {
					t.Errorf("%s imports %s: calls to Google are made by %s", name, path, api)
				}
			}
		}
	}
}
