package api

import (
	"context"
	"net/http"
	"net/url"

	"google.golang.org/api/cloudbilling/v1"
	"google.golang.org/api/cloudresourcemanager/v1"
)

// computeService is Compute Engine in the billing catalog.
const computeService = "services/6F81-5844-456A"

// SKUs lists the lines of the billing catalog of Compute Engine, with prices in USD.
func (c *Client) SKUs(ctx context.Context) (out []*cloudbilling.Sku, err error) {
	r := &request{action: "services.skus.list", verb: http.MethodGet, host: billingHost, path: "/v1/" + computeService + "/skus",
		query: url.Values{"currencyCode": {"USD"}, "pageSize": {"5000"}}}
	for {
		page := &cloudbilling.ListSkusResponse{}
		if err := c.call(ctx, r, page); err != nil {
			return nil, err
		}
		if out = append(out, page.Skus...); page.NextPageToken == "" {
			return out, nil
		}
		r.with("pageToken", page.NextPageToken)
	}
}

// TestPermissions returns those of the permissions that the caller has in a project, 100 at most.
func (c *Client) TestPermissions(ctx context.Context, project string, permissions []string) ([]string, error) {
	out := &cloudresourcemanager.TestIamPermissionsResponse{}
	err := c.call(ctx, &request{action: "projects.testIamPermissions", verb: http.MethodPost, host: projectsHost,
		path: "/v1/projects/" + project + ":testIamPermissions",
		body: &cloudresourcemanager.TestIamPermissionsRequest{Permissions: permissions}}, out)
	return out.Permissions, err
}
