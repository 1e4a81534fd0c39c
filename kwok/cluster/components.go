package cluster

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The components of a sandbox, by the names that the commands, logs and tests use.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
	Clouds            = "clouds"
	Muster            = "muster"
	Standby           = "muster-standby"
	Dispatcher        = "muster-dispatcher"
	Dashboard         = "dashboard"
)

// component is how the supervisor starts a child and checks that it serves.
type component struct {
	name string

	// needs are the components that must be ready before this one starts.
	needs []string

	// ports are the names of the ports it listens on; one that bears the component's name is its main port.
	ports []string

	args  func(plan) []string
	probe func(plan) Probe

	// program is the executable of one that is not in the sandbox binary, and env is what it has in its environment
	// beside what all have.
	program string
	env     []string
}

// components stand in start order. They are stopped in the reverse: clients before kube-apiserver, which would hang in
// its shutdown if etcd went first.
var components = []component{
	{name: Etcd, ports: []string{Etcd}, args: etcdArgs, probe: etcdProbe},
	{name: APIServer, needs: []string{Etcd}, ports: []string{APIServer}, args: apiServerArgs, probe: secureProbe(APIServer, "/readyz")},
	{name: ControllerManager, needs: []string{Etcd, APIServer}, ports: []string{ControllerManager}, args: controllerManagerArgs,
		probe: secureProbe(ControllerManager, "/healthz")},
	{name: Scheduler, needs: []string{Etcd, APIServer}, ports: []string{Scheduler}, args: schedulerArgs,
		probe: secureProbe(Scheduler, "/readyz")},
	{name: Kwok, needs: []string{Etcd, APIServer}, ports: []string{Kwok}, args: kwokArgs, probe: plainProbe(Kwok, "/healthz")},
	{name: Clouds, needs: []string{Etcd, APIServer}, ports: []string{Clouds, cloudsAWS, cloudsGCP}, args: cloudsArgs,
		probe: plainProbe(Clouds, "/healthz")},
	{name: Muster, needs: []string{Etcd, APIServer}, ports: []string{musterHealth, musterMetrics, musterWebhook},
		args: musterArgs(Muster, musterHealth, musterMetrics), probe: plainProbe(musterHealth, "/readyz")},
	{name: Standby, needs: []string{Etcd, APIServer, Muster}, ports: []string{standbyHealth, standbyMetrics},
		args: musterArgs(Standby, standbyHealth, standbyMetrics), probe: plainProbe(standbyHealth, "/readyz")},
	{name: Dispatcher, needs: []string{Etcd, APIServer, Muster}, ports: []string{dispatcherHealth, dispatcherMetrics},
		args: dispatcherArgs, probe: plainProbe(dispatcherHealth, "/readyz")},
	{name: Dashboard, needs: []string{Etcd, APIServer}, ports: []string{Dashboard}, args: dashboardArgs,
		probe: plainProbe(Dashboard, "/healthz")},
}

// The simulated clouds listen on a port each, beside the one for their bill.
const (
	cloudsAWS = "clouds-aws"
	cloudsGCP = "clouds-gcp"
)

// muster listens on up to three ports, without a main one. So do the standby and the dispatcher, which have no webhook.
const (
	musterHealth   = "muster-health"
	musterMetrics  = "muster-metrics"
	musterWebhook  = "muster-webhook"
	standbyHealth  = "muster-standby-health"
	standbyMetrics = "muster-standby-metrics"

	dispatcherHealth  = "muster-dispatcher-health"
	dispatcherMetrics = "muster-dispatcher-metrics"
)

// ComponentNames lists all components in start order.
func ComponentNames() []string {
	names := make([]string, 0, len(components))
	for _, component := range components {
		names = append(names, component.name)
	}
	return names
}

func componentByName(name string) (component, bool) {
	i := slices.IndexFunc(components, func(c component) bool { return c.name == name })
	if i < 0 {
		return component{}, false
	}
	return components[i], true
}

// plan is everything that is settled before the first process starts.
type plan struct {
	layout
	ports    map[string]int
	selected []string

	// controlPlaneFlags and musterFlags are flags of the sandbox's user.
	controlPlaneFlags, musterFlags []string
	// gatedAPIs are the beta APIs that kube-apiserver serves.
	gatedAPIs []string

	// audit: kube-apiserver logs the writes. webhook: it calls muster's webhook. settings: muster has a settings file. typeChecking:
	// kube-controller-manager checks the policies.
	audit, webhook, settings, typeChecking bool

	// proxies are the URLs of what stands between a component and kube-apiserver, where something does.
	proxies map[string]string

	// operators are the components that the configuration brings along, and objects is what they need in the cluster.
	operators []component
	objects   []*unstructured.Unstructured
}

func (p plan) runs(name string) bool { return slices.Contains(p.selected, name) }

// component is one of the sandbox's own, or an operator.
func (p plan) component(name string) component {
	if i := slices.IndexFunc(p.operators, func(c component) bool { return c.name == name }); i >= 0 {
		return p.operators[i]
	}
	own, _ := componentByName(name)
	return own
}

func (p plan) address(port string) string { return loopback + ":" + strconv.Itoa(p.ports[port]) }

// etcdQuotaBytes replaces etcd's default of 2 GiB, which thousands of nodes and their pods outgrow. 8 GiB is the most
// that etcd recommends.
const etcdQuotaBytes = 8 << 30

func etcdArgs(p plan) []string {
	client := "https://" + p.address(Etcd)
	// The only member never dials a peer, so any port will do.
	const peer = "https://" + loopback + ":0"
	return []string{
		"--name=sandbox",
		"--data-dir=" + p.etcdDir,
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=sandbox=" + peer,
		"--cert-file=" + p.certificate(etcdServerCert),
		"--key-file=" + p.key(etcdServerCert),
		"--trusted-ca-file=" + p.certificate(etcdCA),
		"--client-cert-auth=true",
		"--peer-cert-file=" + p.certificate(etcdServerCert),
		"--peer-key-file=" + p.key(etcdServerCert),
		"--peer-trusted-ca-file=" + p.certificate(etcdCA),
		"--peer-client-cert-auth=true",
		"--quota-backend-bytes=" + strconv.Itoa(etcdQuotaBytes),
		// A process that dies loses nothing by this; a machine that loses power may. It makes writes several times faster.
		"--unsafe-no-fsync=true",
		// A lone member waits for its own election, by default for up to a second. The least that goes with the default
		// heartbeat; a faster one would be most of what an idle etcd takes.
		"--election-timeout=500",
		"--log-level=warn",
	}
}

func apiServerArgs(p plan) []string {
	args := []string{
		"--etcd-servers=https://" + p.address(Etcd),
		"--etcd-cafile=" + p.certificate(etcdCA),
		"--etcd-certfile=" + p.certificate(etcdClientCert),
		"--etcd-keyfile=" + p.key(etcdClientCert),
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		"--secure-port=" + strconv.Itoa(p.ports[APIServer]),
		"--tls-cert-file=" + p.certificate(servingCert),
		"--tls-private-key-file=" + p.key(servingCert),
		"--client-ca-file=" + p.certificate(clusterCA),
		"--authorization-mode=RBAC",
		// Nothing runs here; installed clusters take privileged pods, which device plugins and storage drivers are.
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.key(serviceAccountKey),
		"--service-account-signing-key-file=" + p.key(serviceAccountKey),
		"--service-cluster-ip-range=10.96.0.0/12",
		// Endpoints may not hold loopback addresses, and no pod really runs here that could use them.
		"--endpoint-reconciler-type=none",
		// The defaults of 400 and 200 turn a burst of thousands of pods into rejected requests.
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=1500",
		// Bounds the shutdown to seconds where a client keeps a watch open; the default waits a minute for it.
		"--shutdown-send-retry-after=true",
	}
	if p.audit {
		args = append(args, "--audit-policy-file="+p.auditPolicy(), "--audit-log-path="+p.auditLog())
	}
	if !p.runs(ControllerManager) {
		// It is what makes the default service account of each namespace; without it no pod would be let in.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	for _, api := range p.gatedAPIs {
		args = append(args, "--runtime-config="+api+"=true")
	}
	return append(args, p.controlPlaneFlags...)
}

func controllerManagerArgs(p plan) []string {
	args := []string{
		"--kubeconfig=" + p.kubeconfig(ControllerManager),
		"--authentication-kubeconfig=" + p.kubeconfig(ControllerManager),
		"--authorization-kubeconfig=" + p.kubeconfig(ControllerManager),
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(p.ports[ControllerManager]),
		"--tls-cert-file=" + p.certificate(servingCert),
		"--tls-private-key-file=" + p.key(servingCert),
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + p.key(serviceAccountKey),
		"--root-ca-file=" + p.certificate(clusterCA),
		// The default of 20 requests a second would be the slowest thing in the sandbox.
		"--kube-api-qps=2000",
		"--kube-api-burst=4000",
		"--concurrent-job-syncs=20",
		// Taints that keep pods off a node until it is ready are removed at this interval.
		"--node-monitor-period=1s",
		// Simulated machines send no heartbeat (see kwokArgs), so a silent machine must not be taken for a lost one.
		// A machine is lost here when its Ready condition says so or its Node is deleted.
		"--node-monitor-grace-period=8760h",
	}
	if !p.typeChecking {
		args = append(args, "--controllers=*,-validatingadmissionpolicy-status-controller")
	}
	return append(args, p.controlPlaneFlags...)
}

func schedulerArgs(p plan) []string {
	return append([]string{
		"--config=" + p.schedulerConfig(),
		"--authentication-kubeconfig=" + p.kubeconfig(Scheduler),
		"--authorization-kubeconfig=" + p.kubeconfig(Scheduler),
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(p.ports[Scheduler]),
		"--tls-cert-file=" + p.certificate(servingCert),
		"--tls-private-key-file=" + p.key(servingCert),
	}, p.controlPlaneFlags...)
}

func kwokArgs(p plan) []string {
	return []string{
		"--kubeconfig=" + p.kubeconfig(Kwok),
		"--config=" + p.kwokConfig(),
		"--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
		// No node leases. At 5,000 nodes their renewal would be hundreds of writes a second; and since KWOK takes a new
		// identity at each start, one that is killed would not manage its own nodes again until their leases ran out.
		"--node-lease-duration-seconds=0",
		"--server-address=" + p.address(Kwok),
		"--cidr=10.128.0.0/9",
		"--v=WARN",
	}
}

func cloudsArgs(p plan) []string {
	return []string{
		"--config=" + p.cloudsConfig(),
		"--kubeconfig=" + p.kubeconfig(admin),
		"--address=" + p.address(Clouds),
		"--aws-address=" + p.address(cloudsAWS),
		"--gcp-address=" + p.address(cloudsGCP),
	}
}

// musterArgs returns the arguments of one muster. It needs no election unless there is a second one.
func musterArgs(name, health, metrics string) func(plan) []string {
	return func(p plan) []string {
		args := []string{
			"--kubeconfig=" + p.kubeconfig(name),
			"--metrics-bind-address=" + p.address(metrics),
			"--health-probe-bind-address=" + p.address(health),
			"--leader-elect=" + strconv.FormatBool(p.runs(Standby)),
		}
		if p.settings {
			args = append(args, "--config="+p.musterConfig())
		}
		if p.webhook && name == Muster {
			args = append(args, "--webhook-bind-address="+p.address(musterWebhook))
		}
		return append(args, p.musterFlags...)
	}
}

// dispatcherArgs: Muster queues here, so the dispatcher makes the copies of jobs.
func dispatcherArgs(p plan) []string {
	return []string{
		"dispatcher", "--make-copies",
		"--namespace=" + accountsNamespace,
		"--kubeconfig=" + p.kubeconfig(Dispatcher),
		"--metrics-bind-address=" + p.address(dispatcherMetrics),
		"--health-probe-bind-address=" + p.address(dispatcherHealth),
		"--leader-elect=false",
	}
}

// dashboardArgs: the page decides as muster does, so both have their settings from one file.
func dashboardArgs(p plan) []string {
	args := []string{"--kubeconfig=" + p.kubeconfig(Dashboard), "--listen=" + p.address(Dashboard)}
	if p.settings {
		args = append(args, "--config="+p.musterConfig())
	}
	return args
}
