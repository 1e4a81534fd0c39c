package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/queueing/notify"
)

// Secret is the name of the Secret that has the receiver of a namespace, or, in Muster's own namespace, that of the cluster.
const Secret = "muster-notifications"

// Keys of the Secret. Only the URL is required.
const (
	urlKey    = "url"
	formatKey = "format"
)

// receiver is a webhook.
type receiver struct {
	// url may contain a token: it occurs in no log, event or error.
	url    *url.URL
	format notify.Format
}

// receiverOf reads a Secret. An error names the key and what to write instead, and never the URL.
func receiverOf(secret *corev1.Secret, allowed []string) (*receiver, error) {
	for key := range secret.Data {
		if key != urlKey && key != formatKey {
			return nil, fmt.Errorf("data has the key %q; the keys are %s and %s", key, urlKey, formatKey)
		}
	}
	out := &receiver{format: notify.CloudEvents}
	if text := strings.TrimSpace(string(secret.Data[formatKey])); text != "" {
		out.format = notify.Format(text)
	}
	if !slices.Contains(notify.Formats, out.format) {
		return nil, fmt.Errorf("data.%s is %q; choose one of %v", formatKey, out.format, notify.Formats)
	}
	var err error
	out.url, err = url.Parse(strings.TrimSpace(string(secret.Data[urlKey])))
	if err != nil || out.url.Host == "" || out.url.Scheme != "https" && out.url.Scheme != "http" {
		return nil, fmt.Errorf("data.%s is not a URL that begins with https:// or http://", urlKey)
	}
	if host := hostOf(out.url); !slices.Contains(allowed, host) {
		return nil, fmt.Errorf("data.%s has the host %s, which is not in notifications.allowedHosts of Muster's settings: ask the "+
			"administrators of the cluster to add it", urlKey, host)
	}
	return out, nil
}

// hostOf is the host with the port that a URL leads to.
func hostOf(u *url.URL) string {
	port := u.Port()
	switch {
	case port == "" && u.Scheme == "http":
		port = "80"
	case port == "":
		port = "443"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// WithPorts adds the port of https to the allowed hosts that have none.
func WithPorts(hosts []string) []string {
	out := make([]string, len(hosts))
	for i, h := range hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), "443")
		}
		out[i] = strings.ToLower(h)
	}
	return out
}

// attemptTimeout bounds one request to a receiver.
const attemptTimeout = 10 * time.Second

// mostAnswer is what is read of an answer, so that its connection can be used again.
const mostAnswer = 4 << 10

// Dial connects to receivers. Link-local addresses are those of the machine's cloud, whose credentials are there: none of them is a
// receiver, whatever name leads there.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("the address of the receiver: %w", err)
		}
		if at.Addr().Unmap().IsLinkLocalUnicast() {
			return fmt.Errorf("%s is a link-local address", at.Addr())
		}
		return nil
	}}).DialContext(ctx, network, address)
}

func newClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		Timeout: attemptTimeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dial, ForceAttemptHTTP2: true, MaxIdleConns: 100, IdleConnTimeout: time.Minute,
		},
		// A redirect could lead to a host that is not allowed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// refusal is an answer that repeating the request does not change.
type refusal string

func (r refusal) Error() string { return string(r) }

// send sends a Notification once. After is how long the receiver wants Muster to wait before the next attempt; zero if it does not say.
func (r *receiver) send(ctx context.Context, client *http.Client, n *notify.Notification, source string) (after time.Duration, err error) {
	body, err := r.format.Encode(n, source)
	if err != nil {
		return 0, refusal(err.Error())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url.String(), bytes.NewReader(body))
	if err != nil {
		return 0, refusal("the request could not be made")
	}
	request.Header.Set("Content-Type", r.format.ContentType())
	request.Header.Set("User-Agent", "muster")
	answer, err := client.Do(request)
	if err != nil {
		// The error of the client has the URL; what it wraps has not.
		if inner := (*url.Error)(nil); errors.As(err, &inner) {
			err = inner.Err
		}
		return 0, err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, mostAnswer)
	_ = answer.Body.Close()
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300:
		return 0, nil
	case code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return time.Duration(max(0, min(seconds, int(deadline/time.Second)))) * time.Second, fmt.Errorf("it answered %s", answer.Status)
	case code >= 300 && code < 400:
		return 0, refusal(fmt.Sprintf("it answered %s: redirects are not followed, so data.%s has to be the final URL", answer.Status, urlKey))
	default:
		return 0, refusal("it answered " + answer.Status)
	}
}
