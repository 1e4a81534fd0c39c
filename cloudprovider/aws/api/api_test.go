package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/calls"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// timeout of a try that is never answered.
	timeout = 100 * time.Millisecond
	// patience with tries that are answered, on whatever machine.
	patience = time.Minute
)

// refuse answers with an error as EC2 does.
func refuse(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Response><Errors><Error><Code>%s</Code><Message>text</Message></Error></Errors></Response>", code)
	}
}

// hang never answers.
func hang(_ http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	<-r.Context().Done()
}

// closed breaks the connection.
func closed(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// service answers the n-th request by the n-th handler, and all after that by the last. It counts them.
func service(t *testing.T, handlers ...http.HandlerFunc) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers[min(int(requests.Add(1)), len(handlers))-1](w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

// client is one for AWS at that address, which answers.
func client(t *testing.T, url string) *Client {
	t.Helper()
	return clientOf(t, url, patience)
}

func clientOf(t *testing.T, url string, timeout time.Duration) *Client {
	t.Helper()
	for k, v := range map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "a", "AWS_EC2_METADATA_DISABLED": "true"} {
		if os.Getenv("AWS_ROLE_ARN") == "" {
			t.Setenv(k, v)
		}
	}
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	c, err := New(t.Context(), Config{Region: "us-east-1", Endpoint: url, Unpaced: true, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAnAnswerWithoutABodyIsNone, and no empty list, by which a group would be taken for deleted.
func TestAnAnswerWithoutABodyIsNone(t *testing.T) {
	empty := func(http.ResponseWriter, *http.Request) {}
	url, requests := service(t, empty)
	groups, err := client(t, url).DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{})
	if e := cloudprovider.CauseOf(err); e == nil || e.Class != v1alpha1.Outage || e.Code != NoAnswer || requests.Load() < 2 {
		t.Errorf("got %v, %v after %d requests, want an outage after several", groups, err, requests.Load())
	}
	if err := createFleet(t, client(t, url)); err == nil || cloudprovider.Refusal(err) != nil {
		t.Errorf("a launch ends with %v, want that its outcome is unknown", err)
	}
}

func createFleet(t *testing.T, c *Client) error {
	_, err := c.CreateFleet(t.Context(), &ec2.CreateFleetInput{
		ClientToken: aws.String("token"), LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{},
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: aws.Int32(4)},
	})
	return err
}

// What AWS does not answer, or answers by an error of its own, says nothing about a launch or its group.
func TestAnOutageSaysNothingAboutALaunch(t *testing.T) {
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		url     string
		timeout time.Duration
		code    string
	}{
		"an internal error":        {refuse(500, "InternalError"), "", patience, "InternalError"},
		"an overloaded service":    {refuse(503, "Unavailable"), "", patience, "Unavailable"},
		"a proxy in the way":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502); fmt.Fprint(w, "<html>") }, "", patience, ""},
		"no answer":                {hang, "", timeout, NoAnswer},
		"a broken connection":      {closed, "", patience, NoAnswer},
		"nothing that listens":     {nil, "http://127.0.0.1:1", patience, NoAnswer},
		"a name that is not found": {nil, "http://ec2.invalid", patience, NoAnswer},
		"half an answer": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			fmt.Fprint(w, "<CreateFleetResponse>")
			w.(http.Flusher).Flush()
			hang(w, r)
		}, "", timeout, NoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			url := tc.url
			if tc.handler != nil {
				url, _ = service(t, tc.handler)
			}
			began := time.Now()
			err := createFleet(t, clientOf(t, url, tc.timeout))
			if took := time.Since(began); took > patience {
				t.Errorf("the call took %s", took)
			}
			cause := cloudprovider.CauseOf(err)
			if cloudprovider.Refusal(err) != nil || cause == nil || cause.Class != v1alpha1.Outage || tc.code != "" && cause.Code != tc.code {
				t.Errorf("got %v, want that says nothing about the launch, of class Outage and code %q", err, tc.code)
			}
		})
	}
}

// The service that gives credentials may fail while AWS is well, and while the caller's rights are.
func TestAnOutageOfCredentials(t *testing.T) {
	sts := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>text</Message></Error><RequestId>r</RequestId></ErrorResponse>", code)
		}
	}
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		timeout time.Duration
		class   v1alpha1.ErrorClass
	}{
		"it fails":                           {sts(500, "InternalFailure"), patience, v1alpha1.Outage},
		"it hangs":                           {hang, timeout, v1alpha1.Outage},
		"it is throttled":                    {sts(400, "Throttling"), patience, v1alpha1.Outage},
		"it cannot reach what knows callers": {sts(400, "IDPCommunicationError"), patience, v1alpha1.Outage},
		"it refuses":                         {sts(403, "AccessDenied"), patience, v1alpha1.Auth},
	} {
		t.Run(name, func(t *testing.T) {
			credentials, _ := service(t, tc.handler)
			url, requests := service(t, refuse(500, "InternalError"))
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte("token"), 0o600); err != nil {
				t.Fatal(err)
			}
			for k, v := range map[string]string{
				"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_ROLE_ARN": "arn:aws:iam::1:role/muster",
				"AWS_WEB_IDENTITY_TOKEN_FILE": file, "AWS_ENDPOINT_URL_STS": credentials,
			} {
				t.Setenv(k, v)
			}
			err := createFleet(t, clientOf(t, url, tc.timeout))
			cause := cloudprovider.CauseOf(err)
			if cause == nil || cause.Class != tc.class || tc.class == v1alpha1.Outage && cloudprovider.Refusal(err) != nil {
				t.Errorf("got %v, want class %s", err, tc.class)
			}
			if requests.Load() > 0 {
				t.Errorf("%d requests were sent without credentials", requests.Load())
			}
		})
	}
}

// AWS judges a token after rate and rights. A refusal for those, after a try that was not answered, does not show what that try has made,
// whether it was a try of this call or of an earlier one.
func TestARefusalBehindALostTry(t *testing.T) {
	throttled, expired, none := refuse(503, "RequestLimitExceeded"), refuse(403, "ExpiredToken"), refuse(500, "InsufficientInstanceCapacity")
	url, _ := service(t, closed, throttled, throttled, throttled, throttled, throttled, expired, none, expired)
	c := client(t, url)
	for i, refused := range []v1alpha1.ErrorClass{"", "", "", v1alpha1.Stockout, v1alpha1.Auth} {
		err := createFleet(t, c)
		if e := cloudprovider.Refusal(err); err == nil || (e == nil) != (refused == "") || e != nil && e.Class != refused {
			t.Errorf("call %d: got %v, want a refusal of class %q", i, err, refused)
		}
	}
}

// Only a call that makes machines refuses a launch.
func TestOtherCallsRefuseNothing(t *testing.T) {
	for _, code := range []string{"RequestLimitExceeded", "UnauthorizedOperation", "InvalidParameterValue"} {
		url, _ := service(t, refuse(400, code))
		_, err := client(t, url).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
		if cloudprovider.Refusal(err) != nil || !HasCode(err, code) {
			t.Errorf("%s: got %v", code, err)
		}
	}
}

// A request that lacks something is not sent, and is no outage.
func TestARequestThatLacksSomething(t *testing.T) {
	url, requests := service(t, hang)
	_, err := client(t, url).CreateFleet(t.Context(), &ec2.CreateFleetInput{ClientToken: aws.String("token")})
	if e := cloudprovider.Refusal(err); e == nil || e.Class != v1alpha1.Config || requests.Load() > 0 {
		t.Errorf("got %v after %d requests, want a refusal of class Config", err, requests.Load())
	}
}

// A caller that gives up is no fault of AWS, and one that may not act has called nothing.
func TestWhatIsNoErrorOfAWS(t *testing.T) {
	url, requests := service(t, hang)
	c := client(t, url)
	deposed := errors.New("another leads")
	c.config.MayAct = func() error { return deposed }
	if err := createFleet(t, c); !errors.Is(err, deposed) || cloudprovider.CauseOf(err) != nil || requests.Load() > 0 {
		t.Errorf("got %v after %d requests, want what keeps the process from acting", err, requests.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
	if !errors.Is(err, context.Canceled) || cloudprovider.CauseOf(err) != nil {
		t.Errorf("got %v, want that the call was cancelled", err)
	}
}

// Each try is counted by its result.
func TestTriesAreCounted(t *testing.T) {
	url, _ := service(t, refuse(500, "InternalError"), closed, refuse(500, "InsufficientInstanceCapacity"))
	c := client(t, url)
	counted := func() map[string]float64 {
		registry := prometheus.NewRegistry()
		registry.MustRegister(calls.Collectors()...)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if labels["call"] == "CreateFleet" {
					out[labels["result"]] = m.GetCounter().GetValue()
				}
			}
		}
		return out
	}
	before := counted()
	_ = createFleet(t, c)
	after := counted()
	if outages, stockouts := after["Outage"]-before["Outage"], after["Stockout"]-before["Stockout"]; outages != 2 || stockouts != 1 {
		t.Errorf("counted are %v outages and %v stockouts, want 2 and 1", outages, stockouts)
	}
}
