package main

// offering joins the cloud, zone, capacity type and instance type of a group to its values.
const offering = ` * on (group) group_left (provider, zone, capacity_type, instance_type)` +
	` max by (group, provider, zone, capacity_type, instance_type) (muster_group_info)`

// offered is the legend of such series.
const offered = "{{instance_type}} {{zone}} {{capacity_type}} ({{group}})"

// teams is the spend of each tenant per hour; machines without a tenant are "(none)".
const teams = `label_replace(max by (namespace, queue) (muster_spend_usd_per_hour), "namespace", "(none)", "namespace", "")`

// boards are all dashboards, one per question.
var boards = []board{queueBoard, obtainabilityBoard, costBoard, healthBoard}

var queueBoard = board{
	name: "queue", title: "Muster: queue", from: "6h",
	description: "Pending workloads: how many, for what and for how long.",
	rows: []row{
		{"Pending", []panel{
			{title: "Pending workloads", width: 8, unit: "short", kind: stacked,
				description: "By ClusterQueue. Inadmissible workloads wait for a change in the cluster; active ones are about to be evaluated.",
				queries:     []query{{`sum by (cluster_queue, status) (kueue_pending_workloads)`, "{{cluster_queue}} {{status}}"}}},
			{title: "Admitted workloads", width: 8, unit: "short", kind: stacked,
				queries: []query{{`sum by (cluster_queue) (kueue_admitted_active_workloads)`, "{{cluster_queue}}"}}},
			{title: "ProvisioningRequests", width: 8, unit: "short", kind: stacked,
				description: "By the last condition that became true. Accepted requests wait for capacity.",
				queries:     []query{{`sum by (condition) (muster_requests)`, "{{condition}}"}}},
			{title: "Quota in use", width: 24, unit: "percentunit", kind: lines,
				description: "Share of the nominal quota that workloads have reserved; above 100 % is borrowed.",
				queries: []query{{`sum by (cluster_queue, flavor, resource) (kueue_cluster_queue_resource_reservation)` +
					` / (sum by (cluster_queue, flavor, resource) (kueue_cluster_queue_nominal_quota) > 0)`,
					"{{cluster_queue}} {{flavor}} {{resource}}"}}},
		}},
		{"Durations", []panel{
			{title: "Time to capacity", width: 12, unit: "s", kind: lines,
				description: "From the creation of a request until it was Provisioned, over the last hour.",
				queries: []query{
					{`histogram_quantile(0.5, sum by (le) (rate(muster_request_provisioned_seconds_bucket[1h])))`, "p50"},
					{`histogram_quantile(0.9, sum by (le) (rate(muster_request_provisioned_seconds_bucket[1h])))`, "p90"},
				}},
			{title: "Time to capacity by stage", width: 12, unit: "s", kind: stacked,
				description: "Mean duration of each stage over the last hour: quota, wait (for the attempt that succeeds), cloud (until it has made " +
					"the machines), boot, join.",
				queries: []query{{`sum by (stage) (rate(muster_time_to_capacity_seconds_sum[1h]))` +
					` / (sum by (stage) (rate(muster_time_to_capacity_seconds_count[1h])) > 0)`, "{{stage}}"}}},
			{title: "Boot time by gang size", width: 12, unit: "s", kind: lines,
				description: "p90 of the time until all nodes of a gang have registered.",
				queries: []query{{`histogram_quantile(0.9, sum by (le, machines) (rate(muster_time_to_capacity_seconds_bucket{stage="boot"}[1h])))`,
					"{{machines}} or more machines"}}},
			{title: "Wait for quota by queue", width: 12, unit: "s", kind: lines,
				description: "p90 of the time until quota is reserved.",
				queries: []query{{`histogram_quantile(0.9, sum by (le, cluster_queue) (rate(kueue_quota_reserved_wait_time_seconds_bucket[1h])))`,
					"{{cluster_queue}}"}}},
			{title: "Time to start of pending workloads", width: 12, unit: "s", kind: lines,
				description: "Expected time until half, or all, of the pending workloads have started. Empty if that is beyond 7 days.",
				queries: []query{{`clamp_min(max by (cluster_queue, workloads) (muster_forecast_start_timestamp_seconds < +Inf) - time(), 0)`,
					"{{workloads}} of {{cluster_queue}}"}}},
			{title: "Forecast accuracy", width: 12, unit: "percentunit", kind: lines,
				description: "For recent starts: the error of the first forecast relative to the wait, and the share that was within its range, " +
					"which should be 80 %.",
				queries: []query{
					{`max(muster_forecast_error_ratio)`, "median error"},
					{`max(muster_forecast_within_range_ratio)`, "within range"},
				}},
		}},
		{"Outcomes", []panel{
			{title: "Bookings", width: 12, unit: "short", kind: bars,
				queries: []query{{`sum by (event) (increase(muster_bookings_total[$__rate_interval]))`, "{{event}}"}}},
			{title: "Evicted workloads", width: 12, unit: "short", kind: bars,
				queries: []query{{`sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total[$__rate_interval]))`,
					"{{cluster_queue}} {{reason}}"}}},
		}},
	},
}

var obtainabilityBoard = board{
	name: "obtainability", title: "Muster: obtainability", from: "6h",
	description: "Which machines can be launched now, and how certain that is.",
	rows: []row{
		{"Chances", []panel{
			{title: "Chance of one machine", width: 24, unit: "percentunit", kind: heat,
				description: "Green: available; red: not. A group without recent launches returns to its prior: see the age of the evidence.",
				queries:     []query{{`max by (group) (muster_group_chance_ratio)` + offering, offered}}},
			{title: "Evidence", width: 12, unit: "short", kind: ranking,
				description: "Number of launches behind the estimate. Each counts half after 30 minutes.",
				queries:     []query{{`sum by (group, outcome) (muster_group_evidence_launches)`, "{{group}} {{outcome}}"}}},
			{title: "Age of the evidence", width: 12, unit: "s", kind: ranking,
				queries: []query{{`time() - max by (group) (muster_group_evidence_timestamp_seconds)`, "{{group}}"}}},
		}},
		{"Attempts", []panel{
			{title: "Launches by outcome", width: 12, unit: "short", kind: bars,
				queries: []query{{`sum by (outcome) (increase(muster_launches_total[$__rate_interval]))`, "{{outcome}}"}}},
			{title: "Launches that failed, by group", width: 12, unit: "short", kind: bars,
				queries: []query{{`sum by (group, outcome) (increase(muster_launches_total{outcome!~"Succeeded|Undone"}[$__rate_interval]))`,
					"{{group}} {{outcome}}"}}},
			{title: "Success by gang size", width: 12, unit: "percentunit", kind: ranking,
				description: "Share of launches in the last hour that succeeded as a whole. It falls if gangs are larger than the free capacity of a " +
					"pool.",
				queries: []query{{`sort_desc(muster:attempt_success:ratio1h)`, "{{machines}} or more machines"}}},
			{title: "Machines lost", width: 12, unit: "short", kind: bars,
				description: "Machines that ended without Muster terminating them, including spot reclaims.",
				queries:     []query{{`sum by (group, stage) (increase(muster_machines_lost_total[$__rate_interval]))`, "{{group}} while {{stage}}"}}},
			{title: "Requests stopped from buying", width: 24, unit: "short", kind: lines,
				description: "Requests that have bought twice the machines that they need and buy nothing for now, and how often that began.",
				queries: []query{{`max(muster_requests_stopped)`, "stopped"},
					{`sum(increase(muster_purchases_stopped_total[$__rate_interval]))`, "stops"}}},
		}},
		{"Prices", []panel{
			{title: "Price per machine and hour", width: 16, unit: "currencyUSD", kind: lines,
				queries: []query{{`max by (group) (muster_group_price_usd_per_hour)` + offering, offered}}},
			{title: "Spot price relative to on-demand", width: 8, unit: "percentunit", kind: ranking,
				description: "Relative to the cheapest on-demand group of the same instance type. At 100 % or more, spot has its risk without a " +
					"saving.",
				queries: []query{{`max by (instance_type, group) (max by (group) (muster_group_price_usd_per_hour)` +
					` * on (group) group_left (instance_type) max by (group, instance_type) (muster_group_info{capacity_type="Spot"}))` +
					` / on (instance_type) group_left min by (instance_type) (max by (group) (muster_group_price_usd_per_hour)` +
					` * on (group) group_left (instance_type) max by (group, instance_type) (muster_group_info{capacity_type="OnDemand"}))`,
					"{{group}}"}}},
		}},
	},
}

var costBoard = board{
	name: "cost", title: "Muster: cost", from: "24h",
	description: "What machines cost, which teams use them, and what is wasted, at the prices of the NodeGroups.",
	rows: []row{
		{"Now", []panel{
			{title: "Spend per hour", width: 6, unit: "currencyUSD", kind: number,
				queries: []query{{`sum(muster:spend_usd_per_hour)`, ""}}},
			{title: "Per month at this rate", width: 6, unit: "currencyUSD", kind: number,
				queries: []query{{`sum(muster:spend_usd_per_hour) * 730`, ""}}},
			{title: "Spent in the selected range", width: 6, unit: "currencyUSD", kind: number,
				queries: []query{{`sum(increase(muster_machine_cost_usd_total[$__range]))`, ""}}},
			{title: "Wasted in the selected range", width: 6, unit: "currencyUSD", kind: number,
				description: "Machines of gangs that were never complete, and bookings that no pod used.",
				queries: []query{{`sum(increase(muster_machine_cost_usd_total{purpose="wasted"}[$__range]))` +
					` + sum(increase(muster_machine_unused_cost_usd_total[$__range]))`, ""}}},
		}},
		{"Spend per hour", []panel{
			{title: "By team", width: 12, unit: "currencyUSD", kind: stacked,
				description: "By namespace and LocalQueue. Machines without a team are idle or being terminated.",
				queries:     []query{{teams, "{{namespace}} {{queue}}"}}},
			{title: "By cloud", width: 12, unit: "currencyUSD", kind: stacked,
				queries: []query{{`sum by (provider) (muster:spend_usd_per_hour)`, "{{provider}}"}}},
			{title: "By capacity type", width: 12, unit: "currencyUSD", kind: stacked,
				queries: []query{{`sum by (capacity_type) (muster:spend_usd_per_hour)`, "{{capacity_type}}"}}},
			{title: "By instance type", width: 12, unit: "currencyUSD", kind: stacked,
				queries: []query{{`sum by (instance_type) (muster:spend_usd_per_hour)`, "{{instance_type}}"}}},
			{title: "By team, in the selected range", width: 12, unit: "currencyUSD", kind: ranking,
				queries: []query{{`sort_desc(sum by (namespace, queue) (label_replace(increase(muster_spend_usd_total[$__range]),` +
					` "namespace", "(none)", "namespace", "")))`, "{{namespace}} {{queue}}"}}},
			{title: "By purpose", width: 12, unit: "currencyUSD", kind: stacked,
				description: "Over the last hour. The time in which machines join is counted when it is over.",
				queries:     []query{{`sum by (purpose) (rate(muster_machine_cost_usd_total[1h])) * 3600`, "{{purpose}}"}}},
		}},
		{"Budgets", []panel{
			{title: "Budgets", width: 12, unit: "percentunit", kind: ranking,
				description: "Share of each budget that is spent in its current period. At 100 % new gangs of its namespaces wait; running gangs " +
					"continue.",
				queries: []query{{`sort_desc(max by (policy, budget) (muster_budget_spent_usd)` +
					` / (max by (policy, budget) (muster_budget_limit_usd) > 0))`, "{{policy}} {{budget}}"}}},
			{title: "Budget left for new gangs", width: 12, unit: "currencyUSD", kind: lines,
				description: "The budget less what is spent and what is committed for machines in use. Negative if gangs have run for longer than " +
					"was committed.",
				queries: []query{{`max by (policy, budget) (muster_budget_limit_usd) - max by (policy, budget) (muster_budget_spent_usd)` +
					` - max by (policy, budget) (muster_budget_committed_usd)`, "{{policy}} {{budget}}"}}},
			{title: "Launches in vain", width: 12, unit: "percentunit", kind: ranking,
				description: "What machines have cost that were terminated before a gang had all that it needs, as a share of what the budget allows " +
					"them in its current period. At 100 % launches wait where the last one of their size failed in that way.",
				queries: []query{{`sort_desc(max by (policy, budget) (muster_budget_vain_usd)` +
					` / (max by (policy, budget) (muster_budget_vain_limit_usd) > 0))`, "{{policy}} {{budget}}"}}},
			{title: "Cost of launches in vain", width: 12, unit: "currencyUSD", kind: stacked,
				description: "Per hour over the last hour: what machines that never served their gang had cost when their launch failed, by cause.",
				queries:     []query{{`sum by (cause) (increase(muster_vain_cost_usd_total[1h]))`, "{{cause}}"}}},
		}},
		{"Waste and machines", []panel{
			{title: "Waste per hour", width: 12, unit: "currencyUSD", kind: stacked,
				description: "Over the last hour. incomplete: machines of gangs that were never complete; unused: bookings that no pod used.",
				queries:     []query{{`sum by (group, reason) (muster:waste_usd_per_hour)`, "{{group}} {{reason}}"}}},
			{title: "Machines", width: 12, unit: "short", kind: stacked,
				queries: []query{{`sum by (state) (muster_machines)`, "{{state}}"}}},
		}},
	},
}

var healthBoard = board{
	name: "health", title: "Muster: health", from: "1h",
	description: "Whether Muster itself keeps up.",
	rows: []row{
		{"Muster", []panel{
			{title: "Writes per second", width: 12, unit: "ops", kind: stacked,
				description: "To the API server, by resource. Writes are the scarcest capacity of a control plane.",
				queries:     []query{{`sum by (resource) (rate(muster_api_writes_total[$__rate_interval]))`, "{{resource}}"}}},
			{title: "Admission cycle", width: 12, unit: "s", kind: lines,
				queries: []query{
					{`histogram_quantile(0.5, sum by (le) (rate(kueue_admission_attempt_duration_seconds_bucket[5m])))`, "p50"},
					{`histogram_quantile(0.99, sum by (le) (rate(kueue_admission_attempt_duration_seconds_bucket[5m])))`, "p99"},
				}},
			{title: "Machines being terminated", width: 12, unit: "short", kind: lines,
				description: "Machines of failed launches that still exist. Nonzero only for minutes.",
				queries:     []query{{`sum by (group) (muster_machines{state="wasted"})`, "{{group}}"}}},
			{title: "Bookings repaired", width: 12, unit: "short", kind: bars,
				description: "Bookings that no longer fit and were moved: something uses capacity that was promised.",
				queries:     []query{{`sum(increase(muster_bookings_repaired_total[$__rate_interval]))`, "repaired"}}},
		}},
	},
}
