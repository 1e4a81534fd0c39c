package externalgrpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cmd/muster/externalgrpc/protos"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// noon in the forms that autoscalers send times in.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// marshaller is implemented by the types of Kubernetes.
type marshaller interface{ Marshal() ([]byte, error) }

// field is a message in a field, as older autoscalers send types of Kubernetes.
func field(t *testing.T, number protowire.Number, m marshaller) []byte {
	t.Helper()
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
}

// parse reads what an older autoscaler has sent.
func parse[M proto.Message](t *testing.T, m M, parts ...[]byte) M {
	t.Helper()
	for _, p := range parts {
		if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(p, m); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// oldTimes are the fields 2 and 3: three hours from noon.
func oldTimes(t *testing.T) []byte {
	t.Helper()
	from, to := metav1.NewTime(noon), metav1.NewTime(noon.Add(3*time.Hour))
	return append(field(t, 2, &from), field(t, 3, &to)...)
}

func TestPrices(t *testing.T) {
	cheap, unknown := groupOf("cheap", 5), groupOf("unknown", 5)
	cheap.Spec.PricePerHour, unknown.Spec.PricePerHour = new(resource.MustParse("1")), nil
	cheap.Spec.Template.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
	pod := func(requests corev1.ResourceList) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}}}
	}
	start, end := timestamppb.New(noon), timestamppb.New(noon.Add(3*time.Hour))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, groupOf("gpu", 5), cheap, unknown)
		w.increase("gpu", 1)
		node := func(id, group string) *protos.ExternalGrpcNode {
			return &protos.ExternalGrpcNode{ProviderID: id, Labels: map[string]string{v1alpha1.NodeGroupLabel: group}}
		}
		for name, tc := range map[string]struct {
			req   *protos.PricingNodePriceRequest
			price float64
			code  codes.Code
		}{
			"a node by its machine":   {&protos.PricingNodePriceRequest{Node: node("sky:///gpu-uid-1-0", ""), StartTimestamp: start, EndTimestamp: end}, 24, codes.OK},
			"a template by its label": {&protos.PricingNodePriceRequest{Node: node("", "cheap"), StartTimestamp: start, EndTimestamp: end}, 3, codes.OK},
			"of an older autoscaler": {parse(t, &protos.PricingNodePriceRequest{Node: node("", "gpu")}, oldTimes(t)),
				24, codes.OK},
			"of an unknown price": {&protos.PricingNodePriceRequest{Node: node("", "unknown")}, 0, codes.Unimplemented},
			"of no group":         {&protos.PricingNodePriceRequest{Node: node("", "")}, 0, codes.NotFound},
		} {
			out, err := w.PricingNodePrice(t.Context(), tc.req)
			if status.Code(err) != tc.code || out.GetPrice() != tc.price {
				t.Errorf("%s: %v, %v, want %v, %s", name, out.GetPrice(), err, tc.price, tc.code)
			}
		}
		for name, tc := range map[string]struct {
			pod   *corev1.Pod
			price float64
			code  codes.Code
		}{
			"a quarter of the cheapest machine": {pod(corev1.ResourceList{"cpu": resource.MustParse("1")}), 0.75, codes.OK},
			"half, by its memory":               {pod(corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("4Gi")}), 1.5, codes.OK},
			"half of one that has GPUs":         {pod(corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}), 12, codes.OK},
			"one that is too large for all":     {pod(corev1.ResourceList{"cpu": resource.MustParse("9")}), 0, codes.Unimplemented},
		} {
			bytes, err := tc.pod.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			for kind, req := range map[string]*protos.PricingPodPriceRequest{
				"new": {PodBytes: bytes, StartTimestamp: start, EndTimestamp: end},
				"old": parse(t, &protos.PricingPodPriceRequest{}, field(t, 1, tc.pod), oldTimes(t)),
			} {
				out, err := w.PricingPodPrice(t.Context(), req)
				if status.Code(err) != tc.code || out.GetPrice() != tc.price {
					t.Errorf("%s, %s: %v, %v, want %v, %s", name, kind, out.GetPrice(), err, tc.price, tc.code)
				}
			}
		}
	})
}

func TestTheTemplateIsANodeThatHasStarted(t *testing.T) {
	group := groupOf("gpu", 5)
	group.Spec.Template.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("7")}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, group)
		out, err := w.NodeGroupTemplateNodeInfo(t.Context(), &protos.NodeGroupTemplateNodeInfoRequest{Id: "gpu"})
		if err != nil {
			t.Fatal(err)
		}
		for kind, bytes := range map[string][]byte{"new": out.GetNodeBytes(), "old": out.GetOldNode()} {
			node := &corev1.Node{}
			if err := node.Unmarshal(bytes); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			w.want(kind+" labels", node.Labels, map[string]string{
				"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "template-gpu", "topology.kubernetes.io/zone": "a",
				"muster.dev/node-group": "gpu", "muster.dev/capacity-type": "spot", "nvidia.com/gpu.product": "H100"})
			w.want(kind+" taints", node.Spec.Taints, group.Spec.Template.Taints)
			w.want(kind+" cpu", node.Status.Allocatable.Cpu().String()+" of "+node.Status.Capacity.Cpu().String(), "7 of 8")
			w.want(kind+" pods", node.Status.Allocatable.Pods().String(), "110")
			gpus := node.Status.Allocatable["nvidia.com/gpu"]
			w.want(kind+" GPUs", gpus.String(), "4")
			w.want(kind+" readiness", node.Status.Conditions[0].Type, corev1.NodeReady)
		}
		types, err := w.GetAvailableGPUTypes(t.Context(), &protos.GetAvailableGPUTypesRequest{})
		if err != nil || len(types.GetGpuTypes()) != 1 || types.GetGpuTypes()["H100"] == nil {
			t.Errorf("types of GPUs: %v, %v", types, err)
		}
		label, err := w.GPULabel(t.Context(), &protos.GPULabelRequest{})
		if err != nil || label.GetLabel() != "nvidia.com/gpu.product" {
			t.Errorf("label of GPUs: %v, %v", label, err)
		}
	})
}

func TestOptionsAreTheGroupsOwnTimes(t *testing.T) {
	group := groupOf("gpu", 5)
	group.Spec.IdleTimeout = &metav1.Duration{Duration: 3 * time.Minute}
	group.Spec.QueueTimeout = &metav1.Duration{Duration: time.Hour}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, group)
		ask := func(defaults *protos.NodeGroupAutoscalingOptions) *protos.NodeGroupAutoscalingOptions {
			out, err := w.NodeGroupGetOptions(t.Context(), &protos.NodeGroupAutoscalingOptionsRequest{Id: "gpu", Defaults: defaults})
			if err != nil {
				t.Fatal(err)
			}
			return out.GetNodeGroupAutoscalingOptions()
		}
		ten := durationpb.New(10 * time.Minute)
		o := ask(&protos.NodeGroupAutoscalingOptions{ScaleDownUtilizationThreshold: 0.5, ScaleDownUnneededDuration: ten,
			ScaleDownUnreadyDuration: ten, MaxNodeProvisionDuration: ten})
		w.want("unneeded", o.GetScaleDownUnneededDuration().AsDuration(), 3*time.Minute)
		w.want("unready", o.GetScaleDownUnreadyDuration().AsDuration(), 10*time.Minute)
		w.want("to join", o.GetMaxNodeProvisionDuration().AsDuration(), 90*time.Minute)
		w.want("threshold", o.GetScaleDownUtilizationThreshold(), 0.5)
		w.want("in old fields", o.GetOldScaleDownUnneeded() == nil, true)

		// An older autoscaler reads all of its fields without checking whether they exist.
		old := &metav1.Duration{Duration: 10 * time.Minute}
		before := parse(t, &protos.NodeGroupAutoscalingOptions{}, field(t, 3, old), field(t, 4, old), field(t, 5, old))
		o = ask(before)
		for what, tc := range map[string]struct {
			got  *protos.OldDuration
			want time.Duration
		}{"unneeded": {o.GetOldScaleDownUnneeded(), 3 * time.Minute}, "unready": {o.GetOldScaleDownUnready(), 10 * time.Minute},
			"to join": {o.GetOldMaxNodeProvision(), 90 * time.Minute}} {
			bytes, err := proto.Marshal(tc.got)
			if err != nil {
				t.Fatal(err)
			}
			var read metav1.Duration
			if err := read.Unmarshal(bytes); err != nil || read.Duration != tc.want {
				t.Errorf("%s, old: %s, %v, want %s", what, read.Duration, err, tc.want)
			}
		}
	})
}

func TestOptionsAreRefusedThatOpenTheDoor(t *testing.T) {
	for _, tc := range []struct {
		options Options
		want    string
	}{
		{Options{Address: "127.0.0.1:8086"}, ""},
		{Options{Address: "localhost:8086"}, ""},
		{Options{Address: ":8086", Cert: "c", Key: "k", ClientCA: "a"}, ""},
		{Options{Address: ":8086"}, "can be reached from other machines"},
		{Options{Address: "8086"}, "is not HOST:PORT"},
		{Options{Address: "127.0.0.1:8086", Cert: "c", Key: "k"}, "belong together"},
		{Options{Address: "127.0.0.1:8086", ClientCA: "a"}, "belong together"},
	} {
		err := tc.options.Validate()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.options, err, tc.want)
		}
	}
}

// authority signs certificates.
type authority struct {
	*testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{T: t, dir: t.TempDir()}
	a.cert, a.key = a.sign(name, nil)
	return a
}

// sign writes a certificate and its key. Without an authority, it signs itself.
func (a *authority) sign(name string, use []x509.ExtKeyUsage) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: use, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: use == nil, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	parent, signer := c, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der},
		".key": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(a.file(name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.Fatal(err)
		}
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		a.Fatal(err)
	}
	return out, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// dial is an autoscaler that trusts the authority a, with the certificate of another.
func (a *authority) dial(by *authority, address string) protos.CloudProviderClient {
	a.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(a.cert)
	if by != nil {
		pair, err := tls.LoadX509KeyPair(by.file("autoscaler.crt"), by.file("autoscaler.key"))
		if err != nil {
			a.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return connect(a.T, address, credentials.NewTLS(config))
}

func connect(t *testing.T, address string, c credentials.TransportCredentials) protos.CloudProviderClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return protos.NewCloudProviderClient(conn)
}

// Only an autoscaler with a certificate of the right authority gets an answer.
func TestOnlyAutoscalersWithACertificateAreServed(t *testing.T) {
	good, bad := newAuthority(t, "ca"), newAuthority(t, "ca")
	good.sign("server", []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth})
	good.sign("autoscaler", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth})
	bad.sign("autoscaler", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth})
	scaler := NewScaler(nil, nil, nil, clock.RealClock{})
	close(scaler.synced)
	l := &Listener{Scaler: scaler, Options: Options{Address: "127.0.0.1:0", GPULabel: "gpu", Cert: good.file("server.crt"),
		Key: good.file("server.key"), ClientCA: good.file("ca.crt")}}
	ctx, cancel := context.WithCancel(t.Context())
	config, err := l.tls(ctx)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", l.Address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- l.serve(ctx, listener, grpc.Creds(credentials.NewTLS(config))) }()
	address := listener.Addr().String()
	for name, tc := range map[string]struct {
		client protos.CloudProviderClient
		want   codes.Code
	}{
		"with a certificate of the authority": {good.dial(good, address), codes.OK},
		"with one of another":                 {good.dial(bad, address), codes.Unavailable},
		"with none":                           {good.dial(nil, address), codes.Unavailable},
		"without TLS":                         {connect(t, address, insecure.NewCredentials()), codes.Unavailable},
	} {
		_, err := tc.client.GPULabel(t.Context(), &protos.GPULabelRequest{})
		if status.Code(err) != tc.want {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Before the machines are listed, a group would seem empty.
func TestNothingIsAnsweredBeforeTheCloudsAreListed(t *testing.T) {
	s := &server{Scaler: NewScaler(nil, nil, nil, clock.RealClock{})}
	handled := false
	handle := func(context.Context, any) (any, error) { handled = true; return nil, nil }
	if _, err := s.untilSynced(t.Context(), nil, nil, handle); status.Code(err) != codes.Unavailable || handled {
		t.Errorf("answered before: %v", err)
	}
	close(s.synced)
	if _, err := s.untilSynced(t.Context(), nil, nil, handle); err != nil || !handled {
		t.Errorf("not answered after: %v", err)
	}
}
