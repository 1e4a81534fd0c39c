package externalgrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cmd/muster/externalgrpc/protos"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
)

// The autoscaler's classes of errors of instances.
const (
	outOfResources = 1
	otherError     = 99
)

// server answers the calls of cluster-autoscalers.
type server struct {
	protos.UnimplementedCloudProviderServer
	*Scaler
	// gpuLabel is the node label with the type of a node's GPUs.
	gpuLabel string
}

// untilSynced refuses calls until all machines are listed: before that, a group would seem empty.
func (s *server) untilSynced(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	select {
	case <-s.synced:
		return handle(ctx, req)
	default:
		return nil, status.Error(codes.Unavailable, "the machines of the clouds are being listed")
	}
}

// NodeGroups lists the groups that cluster-autoscalers scale.
func (s *server) NodeGroups(ctx context.Context, _ *protos.NodeGroupsRequest) (*protos.NodeGroupsResponse, error) {
	groups, err := s.groups(ctx)
	if err != nil {
		return nil, err
	}
	out := &protos.NodeGroupsResponse{}
	for _, g := range groups {
		out.NodeGroups = append(out.NodeGroups, describe(g))
	}
	return out, nil
}

// groups returns the groups that cluster-autoscalers scale, by name.
func (s *server) groups(ctx context.Context) (out []*v1alpha1.NodeGroup, err error) {
	list := &v1alpha1.NodeGroupList{}
	if err := s.Client.List(ctx, list); err != nil {
		return nil, status.Errorf(codes.Unavailable, "listing NodeGroups: %v", err)
	}
	for i := range list.Items {
		if g := &list.Items[i]; g.Spec.ScaledBy == v1alpha1.ScaledByClusterAutoscaler {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.NodeGroup) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func describe(g *v1alpha1.NodeGroup) *protos.NodeGroup {
	return &protos.NodeGroup{
		Id: g.Name, MinSize: g.Spec.MinNodes, MaxSize: g.Spec.MaxNodes,
		Debug: fmt.Sprintf("NodeGroup %s of provider %s, %s, zone %s", g.Name, g.Spec.Provider, g.Spec.CapacityType.LabelValue(), g.Spec.Zone),
	}
}

// group reads a group that a cluster-autoscaler may scale.
func (s *server) group(ctx context.Context, from client.Reader, name string) (*v1alpha1.NodeGroup, error) {
	g := &v1alpha1.NodeGroup{}
	switch err := from.Get(ctx, client.ObjectKey{Name: name}, g); {
	case apierrors.IsNotFound(err):
		return nil, status.Errorf(codes.NotFound, "there is no NodeGroup %q", name)
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "reading NodeGroup %s: %v", name, err)
	}
	return g, served(g)
}

// served returns an error for a group that is not the autoscaler's.
func served(g *v1alpha1.NodeGroup) error {
	if g.Spec.ScaledBy != v1alpha1.ScaledByClusterAutoscaler {
		return status.Errorf(codes.FailedPrecondition, "NodeGroup %s has spec.scaledBy %s: set it to %s to have a cluster-autoscaler scale it",
			g.Name, g.Spec.ScaledBy, v1alpha1.ScaledByClusterAutoscaler)
	}
	return nil
}

// NodeGroupForNode answers with an empty ID for nodes that are not the autoscaler's business.
func (s *server) NodeGroupForNode(ctx context.Context, req *protos.NodeGroupForNodeRequest) (*protos.NodeGroupForNodeResponse, error) {
	none := &protos.NodeGroupForNodeResponse{NodeGroup: &protos.NodeGroup{}}
	m, ok := s.machines.byID(req.GetNode().GetProviderID())
	if !ok {
		return none, nil
	}
	g, err := s.group(ctx, s.Client, m.Group)
	if c := status.Code(err); c == codes.NotFound || c == codes.FailedPrecondition {
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	return &protos.NodeGroupForNodeResponse{NodeGroup: describe(g)}, nil
}

// size returns the number of machines of a group, including missing ones.
func size(g *v1alpha1.NodeGroup, r *record, there *picture) int {
	n := there.size()
	for i := range r.Open {
		l := &r.Open[i]
		n += l.missing(len(there.made[l.token(g)]))
	}
	return n
}

// pending returns how many machines may still appear that the autoscaler has given up.
func (r *record) pending() (n int) {
	for i := range r.Open {
		if l := &r.Open[i]; l.GivenUp != nil {
			n += l.Count - len(l.Keep)
		}
	}
	return n
}

// NodeGroupTargetSize includes machines that are still to come.
func (s *server) NodeGroupTargetSize(ctx context.Context, req *protos.NodeGroupTargetSizeRequest) (*protos.NodeGroupTargetSizeResponse,
	error) {
	g, r, err := s.record(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	there := s.machines.of(g, &r)
	return &protos.NodeGroupTargetSizeResponse{TargetSize: int32(size(g, &r, &there))}, nil
}

// record reads a group with its record.
func (s *server) record(ctx context.Context, name string) (*v1alpha1.NodeGroup, record, error) {
	g, err := s.group(ctx, s.Live, name)
	if err != nil {
		return nil, record{}, err
	}
	r, err := read(g)
	if err != nil {
		return nil, r, status.Error(codes.FailedPrecondition, err.Error())
	}
	return g, r, nil
}

// update changes the record of a group that the autoscaler may scale.
func (s *server) update(ctx context.Context, name string, change func(*v1alpha1.NodeGroup, *record) error) error {
	err := s.change(ctx, name, func(g *v1alpha1.NodeGroup, r *record) error {
		if err := served(g); err != nil {
			return err
		}
		return change(g, r)
	})
	if apierrors.IsNotFound(err) {
		return status.Errorf(codes.NotFound, "there is no NodeGroup %q", name)
	}
	if errors.Is(err, errUnreadable) {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if _, ok := status.FromError(err); !ok {
		return status.Error(codes.Unavailable, err.Error())
	}
	return err
}

// NodeGroupIncreaseSize returns once the launch is on record; the cloud's answer shows in the
// group's instances.
func (s *server) NodeGroupIncreaseSize(ctx context.Context, req *protos.NodeGroupIncreaseSizeRequest) (
	*protos.NodeGroupIncreaseSizeResponse, error) {
	delta := int(req.GetDelta())
	if delta < 1 {
		return nil, status.Errorf(codes.InvalidArgument, "delta is %d: a group grows by at least 1", delta)
	}
	err := s.update(ctx, req.GetId(), func(g *v1alpha1.NodeGroup, r *record) error {
		there := s.machines.of(g, r)
		if n := size(g, r, &there) + r.pending(); n+delta > int(g.Spec.MaxNodes) {
			return status.Errorf(codes.OutOfRange, "NodeGroup %s has %d machines and may have %d (spec.maxNodes): it cannot grow by %d",
				g.Name, n, g.Spec.MaxNodes, delta)
		}
		r.begin(delta, s.Clock.Now().UTC())
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case s.recorded <- struct{}{}:
	default:
	}
	return &protos.NodeGroupIncreaseSizeResponse{}, nil
}

// NodeGroupDeleteNodes terminates exactly the machines of the named nodes, and gives up missing ones. If one cannot be deleted, none is.
func (s *server) NodeGroupDeleteNodes(ctx context.Context, req *protos.NodeGroupDeleteNodesRequest) (*protos.NodeGroupDeleteNodesResponse,
	error) {
	g, r, err := s.record(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	there := s.machines.of(g, &r)
	var names []string
	missing := map[int]map[string]bool{}
	for _, n := range req.GetNodes() {
		if number, ok := launchOf(g.Name, n.GetProviderID()); ok {
			if missing[number] == nil {
				missing[number] = map[string]bool{}
			}
			missing[number][n.GetProviderID()] = true
			continue
		}
		m, ok := s.machines.byID(n.GetProviderID())
		if !ok || m.Group != g.Name {
			return nil, status.Errorf(codes.InvalidArgument, "node %s (%s) is none of NodeGroup %s: nothing is deleted", n.GetName(),
				n.GetProviderID(), g.Name)
		}
		if err := s.free(ctx, n.GetName()); err != nil {
			return nil, err
		}
		if m.Counts() && !there.taken[m.Name] && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	if left := there.size() - len(names); len(names) > 0 && left < int(g.Spec.MinNodes) {
		return nil,
			status.Errorf(codes.FailedPrecondition, "NodeGroup %s would be left with %d machines and keeps %d (spec.minNodes): nothing is deleted",
				g.Name, left, g.Spec.MinNodes)
	}
	if err := s.giveUp(ctx, g.Name, missing); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return &protos.NodeGroupDeleteNodesResponse{}, nil
	}
	provider := s.Providers[g.Spec.Provider]
	if provider == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "provider %q is not available in this process", g.Spec.Provider)
	}
	if err := provider.Terminate(ctx, g.Name, names); err != nil {
		return nil, refused(err)
	}
	s.machines.take(g.Name, names)
	return &protos.NodeGroupDeleteNodesResponse{}, nil
}

// giveUp gives up missing machines, by the number of their launch.
func (s *server) giveUp(ctx context.Context, group string, missing map[int]map[string]bool) error {
	if len(missing) == 0 {
		return nil
	}
	return s.update(ctx, group, func(g *v1alpha1.NodeGroup, r *record) error {
		there := s.machines.of(g, r)
		for number, ids := range missing {
			l := launch{Number: number}
			if err := r.giveUp(number, len(ids), there.made[l.token(g)], s.Clock.Now().UTC()); err != nil {
				return status.Errorf(codes.FailedPrecondition, "NodeGroup %s: %v", g.Name, err)
			}
		}
		return nil
	})
}

// free returns an error for a node that a ProvisioningRequest has booked, or whose gang runs: an
// autoscaler that chose it before it was marked must not have it.
func (s *server) free(ctx context.Context, name string) error {
	n := &corev1.Node{}
	switch err := s.Live.Get(ctx, client.ObjectKey{Name: name}, n); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return status.Errorf(codes.Unavailable, "reading node %s: %v", name, err)
	}
	if b := state.BookingsOn(n.Labels, n.Annotations); len(b) > 0 {
		return status.Errorf(codes.FailedPrecondition, "node %s is booked for the ProvisioningRequest of key %s: nothing is deleted", name,
			b[0].Key)
	}
	return nil
}

// refused passes a cloud's error on.
func refused(err error) error {
	if e := cloudprovider.CauseOf(err); e != nil && e.Class == v1alpha1.Auth {
		return status.Error(codes.PermissionDenied, e.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}

// NodeGroupDecreaseTargetSize gives up missing machines, the newest first; no machine that exists
// is terminated.
func (s *server) NodeGroupDecreaseTargetSize(ctx context.Context, req *protos.NodeGroupDecreaseTargetSizeRequest) (
	*protos.NodeGroupDecreaseTargetSizeResponse, error) {
	left := -int(req.GetDelta())
	if left < 1 {
		return nil, status.Errorf(codes.InvalidArgument, "delta is %d: give a negative number", req.GetDelta())
	}
	err := s.update(ctx, req.GetId(), func(g *v1alpha1.NodeGroup, r *record) error {
		left := left
		there := s.machines.of(g, r)
		for _, l := range slices.Backward(slices.Clone(r.Open)) {
			made := there.made[l.token(g)]
			n := min(left, l.missing(len(made)))
			if n == 0 {
				continue
			}
			if err := r.giveUp(l.Number, n, made, s.Clock.Now().UTC()); err != nil {
				return status.Errorf(codes.FailedPrecondition, "NodeGroup %s: %v", g.Name, err)
			}
			left -= n
		}
		if left > 0 {
			return status.Errorf(codes.FailedPrecondition, "%d of these machines of NodeGroup %s exist: delete them by name", left, g.Name)
		}
		return nil
	})
	return &protos.NodeGroupDecreaseTargetSizeResponse{}, err
}

// NodeGroupNodes lists the machines of a group, with missing ones as instances that are being created.
func (s *server) NodeGroupNodes(ctx context.Context, req *protos.NodeGroupNodesRequest) (*protos.NodeGroupNodesResponse, error) {
	g, r, err := s.record(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	there := s.machines.of(g, &r)
	out := &protos.NodeGroupNodesResponse{}
	add := func(id string, state protos.InstanceStatus_InstanceState, e *protos.InstanceErrorInfo) {
		out.Instances = append(out.Instances, &protos.Instance{Id: id, Status: &protos.InstanceStatus{InstanceState: state, ErrorInfo: e}})
	}
	for _, m := range there.living {
		switch {
		case there.taken[m.Name]:
			add(m.ProviderID, protos.InstanceStatus_instanceDeleting, nil)
		case m.State == cloudprovider.Running:
			add(m.ProviderID, protos.InstanceStatus_instanceRunning, nil)
		default:
			add(m.ProviderID, protos.InstanceStatus_instanceCreating, nil)
		}
	}
	for _, l := range r.Open {
		for i := range l.missing(len(there.made[l.token(g)])) {
			add(missingID(g.Name, l.Number, i), protos.InstanceStatus_instanceCreating, l.Refused.info())
		}
	}
	return out, nil
}

// info converts the refusal to the autoscaler's form; nil for none.
func (r *refusal) info() *protos.InstanceErrorInfo {
	if r == nil {
		return nil
	}
	class := int32(otherError)
	if r.Class == v1alpha1.Stockout || r.Class == v1alpha1.Quota {
		class = outOfResources
	}
	return &protos.InstanceErrorInfo{ErrorCode: r.Code, ErrorMessage: r.Message, InstanceErrorClass: class}
}

// NodeGroupTemplateNodeInfo is a node of the group once it has started, as far as real ones were
// not seen to offer less.
func (s *server) NodeGroupTemplateNodeInfo(ctx context.Context, req *protos.NodeGroupTemplateNodeInfoRequest) (
	*protos.NodeGroupTemplateNodeInfoResponse, error) {
	g, err := s.group(ctx, s.Client, req.GetId())
	if err != nil {
		return nil, err
	}
	bytes, err := template(g).Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "marshalling the template of NodeGroup %s: %v", g.Name, err)
	}
	return &protos.NodeGroupTemplateNodeInfoResponse{OldNode: bytes, NodeBytes: bytes}, nil
}

// NodeGroupGetOptions answers with the group's own times in place of the autoscaler's flags.
func (s *server) NodeGroupGetOptions(ctx context.Context, req *protos.NodeGroupAutoscalingOptionsRequest) (
	*protos.NodeGroupAutoscalingOptionsResponse, error) {
	g, err := s.group(ctx, s.Client, req.GetId())
	if err != nil {
		return nil, err
	}
	o := req.GetDefaults()
	if o == nil {
		return nil, status.Error(codes.InvalidArgument, "the request has no defaults")
	}
	group := nodegroups.GroupFrom(g, g.Status, 0)
	idle, join := group.IdleTimeout, group.QueueTimeout+group.JoinTimeout
	if o.ScaleDownUnneededDuration != nil {
		o.ScaleDownUnneededDuration, o.MaxNodeProvisionDuration = durationpb.New(idle), durationpb.New(join)
	}
	if o.OldScaleDownUnneeded != nil {
		o.OldScaleDownUnneeded, o.OldMaxNodeProvision = old(idle), old(join)
	}
	return &protos.NodeGroupAutoscalingOptionsResponse{NodeGroupAutoscalingOptions: o}, nil
}

func old(d time.Duration) *protos.OldDuration { return &protos.OldDuration{Duration: int64(d)} }

// GPULabel returns the label of nodes whose GPUs are not allocatable yet.
func (s *server) GPULabel(context.Context, *protos.GPULabelRequest) (*protos.GPULabelResponse, error) {
	return &protos.GPULabelResponse{Label: s.gpuLabel}, nil
}

// GetAvailableGPUTypes lists the values of that label in the groups' templates.
func (s *server) GetAvailableGPUTypes(ctx context.Context, _ *protos.GetAvailableGPUTypesRequest) (*protos.GetAvailableGPUTypesResponse,
	error) {
	groups, err := s.groups(ctx)
	if err != nil {
		return nil, err
	}
	types := map[string]*anypb.Any{}
	for _, g := range groups {
		if v := g.Spec.Template.Labels[s.gpuLabel]; v != "" {
			types[v] = &anypb.Any{}
		}
	}
	return &protos.GetAvailableGPUTypesResponse{GpuTypes: types}, nil
}

// Refresh comes before each loop of the autoscaler. There is nothing to do: machines are watched.
func (s *server) Refresh(context.Context, *protos.RefreshRequest) (*protos.RefreshResponse, error) {
	return &protos.RefreshResponse{}, nil
}

// Cleanup comes when the autoscaler ends. The clouds are watched on: another may begin.
func (s *server) Cleanup(context.Context, *protos.CleanupRequest) (*protos.CleanupResponse, error) {
	return &protos.CleanupResponse{}, nil
}
