package managers

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/cmd/muster/externalgrpc/protos"
)

// AutoscalerVariable names a stock cluster-autoscaler that was built with the tag externalgrpc.
const AutoscalerVariable = "MUSTER_AUTOSCALER_BIN"

// NewAutoscaler returns a stock cluster-autoscaler with all permissions, without node groups. It serves ProvisioningRequests of the class
// check-capacity, in batches, every second. Its cloud provider stops with the context.
func NewAutoscaler(ctx context.Context, server *rest.Config, binary, dir string) (*Manager, error) {
	const name = "cluster-autoscaler"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	cloud := grpc.NewServer()
	protos.RegisterCloudProviderServer(cloud, noCloud{})
	context.AfterFunc(ctx, cloud.Stop)
	go func() { _ = cloud.Serve(listener) }() // it ends with the context
	config := filepath.Join(dir, "cloud.yaml")
	if err := os.WriteFile(config, []byte("address: "+listener.Addr().String()+"\n"), 0o600); err != nil {
		return nil, err
	}
	set, err := kubernetes.NewForConfig(server)
	if err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}}
	if _, err := set.CoreV1().ServiceAccounts(account.Namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: name}},
	}
	if _, err := set.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return newManager(ctx, server, Manager{
		name: name, dir: dir, namespace: account.Namespace, account: name,
		command: []string{
			binary, "--cloud-provider=externalgrpc", "--cloud-config=" + config, "--leader-elect=false", "--address=127.0.0.1:0",
			"--scan-interval=1s", "--enable-provisioning-requests", "--check-capacity-batch-processing",
			"--check-capacity-provisioning-request-max-batch-size=1000", "--kube-client-qps=1000", "--kube-client-burst=1000",
		},
	})
}

// noCloud has no groups.
type noCloud struct {
	protos.UnimplementedCloudProviderServer
}

func (noCloud) NodeGroups(context.Context, *protos.NodeGroupsRequest) (*protos.NodeGroupsResponse, error) {
	return &protos.NodeGroupsResponse{}, nil
}

func (noCloud) NodeGroupForNode(context.Context, *protos.NodeGroupForNodeRequest) (*protos.NodeGroupForNodeResponse, error) {
	return &protos.NodeGroupForNodeResponse{NodeGroup: &protos.NodeGroup{}}, nil
}

func (noCloud) GPULabel(context.Context, *protos.GPULabelRequest) (*protos.GPULabelResponse, error) {
	return &protos.GPULabelResponse{}, nil
}

func (noCloud) GetAvailableGPUTypes(context.Context, *protos.GetAvailableGPUTypesRequest) (*protos.GetAvailableGPUTypesResponse, error) {
	return &protos.GetAvailableGPUTypesResponse{}, nil
}

func (noCloud) Cleanup(context.Context, *protos.CleanupRequest) (*protos.CleanupResponse, error) {
	return &protos.CleanupResponse{}, nil
}

func (noCloud) Refresh(context.Context, *protos.RefreshRequest) (*protos.RefreshResponse, error) {
	return &protos.RefreshResponse{}, nil
}
