package api

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
	"github.com/aws/smithy-go"
)

// eks reads managed node groups. Only one call is needed, for which the SDK's client of the
// service would be a large dependency.
type eks struct {
	aws.Config
	endpoint string
}

func newEKS(sdk aws.Config) *eks {
	domain := "amazonaws.com"
	if strings.HasPrefix(sdk.Region, "cn-") {
		domain += ".cn"
	}
	out := &eks{Config: sdk, endpoint: "https://eks." + sdk.Region + "." + domain}
	if sdk.BaseEndpoint != nil {
		out.endpoint = *sdk.BaseEndpoint
	}
	return out
}

// Nodegroup is what Muster reads of a managed node group.
type Nodegroup struct {
	// Labels and Taints that its nodes register with.
	Labels map[string]string
	Taints []struct{ Key, Value, Effect string }
	// NodeRepairConfig of a group whose nodes EKS replaces if it finds them unhealthy; nil for none.
	NodeRepairConfig *struct{ Enabled bool }
}

// nodegroupName is what names a managed node group.
type nodegroupName struct{ cluster, name string }

const describeNodegroup = "DescribeNodegroup"

// DescribeNodegroup is tried once.
func (c *Client) DescribeNodegroup(ctx context.Context, cluster, name string) (*Nodegroup, error) {
	return beside(ctx, c, describeNodegroup, func(ctx context.Context, of *nodegroupName, _ ...func(*struct{})) (out *Nodegroup, err error) {
		err = c.try(ctx, describeNodegroup, func(ctx context.Context) (err error) {
			out, err = c.eks.describeNodegroup(ctx, of)
			return err
		})
		return out, err
	}, &nodegroupName{cluster, name})
}

func (e *eks) describeNodegroup(ctx context.Context, of *nodegroupName) (*Nodegroup, error) {
	path := "/clusters/" + url.PathEscape(of.cluster) + "/node-groups/" + url.PathEscape(of.name)
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
	var out struct{ Nodegroup *Nodegroup }
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	if out.Nodegroup == nil {
		return nil, errors.New("the answer has no node group")
	}
	return out.Nodegroup, nil
}
