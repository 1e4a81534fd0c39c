package aws

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// eks reads managed node groups. Only one call is needed, for which the SDK's client of the
// service would be a large dependency.
type eks struct {
	aws.Config
	endpoint string
}

// clusterNameTag names the EKS cluster of a managed node group.
const clusterNameTag = "eks:cluster-name"

// eksPatience is how long one call may take: networks without a way to the service keep it
// waiting, and discovery with it.
const eksPatience = 5 * time.Second

func newEKS(sdk aws.Config) *eks {
	domain := "amazonaws.com"
	if strings.HasPrefix(sdk.Region, "cn-") {
		domain += ".cn"
	}
	out := &eks{Config: sdk, endpoint: "https://eks." + sdk.Region + "." + domain}
	if out.HTTPClient == nil { // the SDK's clients have a default of their own
		out.HTTPClient = awshttp.NewBuildableClient()
	}
	if sdk.BaseEndpoint != nil {
		out.endpoint = *sdk.BaseEndpoint
	}
	return out
}

// nodegroup is what nodes of a managed node group register with.
type nodegroup struct {
	Labels map[string]string
	Taints []struct{ Key, Value, Effect string }
}

// describeNodegroup is the call DescribeNodegroup.
func (e *eks) describeNodegroup(ctx context.Context, cluster, name string) (*nodegroup, error) {
	ctx, cancel := context.WithTimeout(ctx, eksPatience)
	defer cancel()
	path := "/clusters/" + url.PathEscape(cluster) + "/node-groups/" + url.PathEscape(name)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.endpoint+path, nil)
	if err != nil {
		return nil, err
	}
	credentials, err := e.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	empty := sha256.Sum256(nil)
	if err := v4.NewSigner().SignHTTP(ctx, credentials, r, hex.EncodeToString(empty[:]), "eks", e.Region, time.Now()); err != nil {
		return nil, err
	}
	reply, err := e.HTTPClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode != http.StatusOK {
		code, _, _ := strings.Cut(reply.Header.Get("X-Amzn-ErrorType"), ":")
		refused := &smithy.GenericAPIError{Code: code, Fault: smithy.FaultClient}
		if reply.StatusCode >= http.StatusInternalServerError {
			refused.Fault = smithy.FaultServer
		}
		var said struct{ Message string }
		_ = json.Unmarshal(text, &said) // the code says enough
		refused.Message = said.Message
		return nil, refused
	}
	var out struct{ Nodegroup *nodegroup }
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	if out.Nodegroup == nil {
		return nil, errors.New("the answer has no node group")
	}
	return out.Nodegroup, nil
}

// taintEffects are the effects of taints in the spelling of EKS.
var taintEffects = map[string]corev1.TaintEffect{
	"NO_SCHEDULE": corev1.TaintEffectNoSchedule, "NO_EXECUTE": corev1.TaintEffectNoExecute,
	"PREFER_NO_SCHEDULE": corev1.TaintEffectPreferNoSchedule,
}

// readNodegroup looks up what the nodes of a managed node group register with. Where that cannot
// be read, what the tags of the group declare has to do.
func (d *discovery) readNodegroup(ctx context.Context, c *candidate) {
	cluster, name := c.tags[clusterNameTag], c.tags[managedTag]
	if cluster == "" || name == "" {
		return
	}
	n, err := d.eks.describeNodegroup(ctx, cluster, name)
	if err != nil {
		c.unread = fmt.Sprintf("DescribeNodegroup: %v", err)
		log.FromContext(ctx).Error(err, "A managed node group cannot be read", "cluster", cluster, "nodegroup", name)
		return
	}
	c.labels = n.Labels
	for _, t := range n.Taints {
		c.taints = append(c.taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: taintEffects[t.Effect]})
	}
}
