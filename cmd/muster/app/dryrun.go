package app

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-dev/muster/deploy"
)

// errDryRun is returned for what would change something in the cluster or in a cloud.
var errDryRun = errors.New("nothing is changed, since muster runs with --dry-run")

// onlyObserve wraps a transport. Of writes, it sends only the reports of the dry run, and the lease. So whatever a controller decides,
// nothing else is changed.
func onlyObserve(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet && !slices.Contains(deploy.DryRunWrites, resourceOf(r.URL.Path)) && !isReview(r) {
			if r.Body != nil {
				_ = r.Body.Close() // the duty of a RoundTripper
			}
			return nil, errDryRun
		}
		return next.RoundTrip(r)
	})
}

// isReview reports whether a request only creates a review, such as a check whether a user may read metrics.
func isReview(r *http.Request) bool { return strings.HasSuffix(resourceOf(r.URL.Path), "reviews") }
