package cluster

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Some components act as service accounts, which the manifests make and give their rights: so a right that is missing
// there is missed here.
const accountsNamespace = "muster-system"

// accounts are their names, by component.
var accounts = map[string]string{Muster: "muster", Standby: "muster", Dispatcher: "muster-dispatcher", Dashboard: "muster-dashboard"}

const (
	tokenLifetime = 2 * time.Hour

	// tokenRetry is the wait after a renewal failed, as it does while kube-apiserver is down.
	tokenRetry = 10 * time.Second
)

// renewToken writes a fresh token for an account and returns the time for which it is good. Clients read the file again
// about once a minute.
func renewToken(ctx context.Context, client kubernetes.Interface, account, path string) (time.Duration, error) {
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(accountsNamespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("getting a token for the service account %s/%s: %w", accountsNamespace, account, err)
	}
	if err := writeFile(path, []byte(answer.Status.Token)); err != nil {
		return 0, err
	}
	return time.Until(answer.Status.ExpirationTimestamp.Time), nil
}

// keepToken renews the token at half of its life until ctx is done.
func keepToken(ctx context.Context, client kubernetes.Interface, account, path string, life time.Duration) {
	for pause := life / 2; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		life, err := renewToken(ctx, client, account, path)
		if pause = life / 2; err != nil {
			pause = tokenRetry
		}
	}
}
