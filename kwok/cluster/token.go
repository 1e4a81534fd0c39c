package cluster

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// muster acts as this service account, which the manifests make and give its rights: so a right that is missing there
// is missed here.
const (
	musterNamespace      = "muster-system"
	musterServiceAccount = "muster"
)

const (
	tokenLifetime = 2 * time.Hour

	// tokenRetry is the wait after a renewal failed, as it does while kube-apiserver is down.
	tokenRetry = 10 * time.Second
)

// renewMusterToken writes a fresh token for muster and returns the time for which it is good. Clients read the file
// again about once a minute.
func renewMusterToken(ctx context.Context, client kubernetes.Interface, path string) (time.Duration, error) {
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(musterNamespace).CreateToken(ctx, musterServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("getting a token for the service account %s/%s: %w", musterNamespace, musterServiceAccount, err)
	}
	if err := writeFile(path, []byte(answer.Status.Token)); err != nil {
		return 0, err
	}
	return time.Until(answer.Status.ExpirationTimestamp.Time), nil
}

// keepMusterToken renews the token at half of its life until ctx is done.
func keepMusterToken(ctx context.Context, client kubernetes.Interface, path string, life time.Duration) {
	for pause := life / 2; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		life, err := renewMusterToken(ctx, client, path)
		if pause = life / 2; err != nil {
			pause = tokenRetry
		}
	}
}
