// Package aws is the adapter of Amazon Web Services. Its machines are EC2 instances;
// what one is made of is said by the launch template of an Auto Scaling group that
// carries the tag muster.dev/enabled.
//
// There are three ways to launch, chosen for each group (tag muster.dev/launch-method,
// field spec.aws.launchMethod). A group of capacity type Reserved is launched by
// RunInstances into the reservation that it names, whose minimum is its maximum; all
// else of it is as with Fleet. That may be a Capacity Block, with which the machines end.
//
//	                     Fleet              Reservation          LaunchInstances
//	the call             CreateFleet,       CreateCapacity-      LaunchInstances of
//	                     instant, with a    Reservation, then    the Auto Scaling
//	                     minimum            RunInstances         group
//	all or nothing by    AWS                AWS                  terminating what came
//	capacity types       OnDemand, Spot     OnDemand             the group's own
//	at most              1000               1000                 100
//	attribution after    tags from birth    tags from birth, of  an intent on the
//	a crash                                 the reservation too  group, then tags
//	self-managed groups  yes, beside them   yes, beside them     yes
//	EKS managed node     no: its machines   no: its machines     yes
//	groups               must be its own    must be its own
//	billed while         nothing            the reservation,     what came of a launch
//	waiting                                 until it is used     that is not whole
//	P2, Muster is up     5 min              5 min                5 min
//	P2, Muster is down   until it is back   the reservation      until it is back
//	                                        ends by itself
//
// The intent of LaunchInstances is a tag on the group, since that call has no tags for
// machines. It is there from before the call until lists show the machines with their own, and
// is listed as a hold. It says until when the call may begin, and is written again before a try
// after that, so every process can compute how long one may still be at work. Its termination repeats the call with its token, which makes
// nothing twice and names what there is: that is terminated, unless it runs pods or is booked, and tagged. This works for as long as
// AWS remembers the token, for which it states no time: machines of a call that has been repeated only
// after that stay as the group's own.
//
// Machines of the group without tags that were launched since the intent was written, or since shortly before a list began, are listed
// as unattributed. Tags are tried again inside the call for a quarter of a minute, and the launch is repeated after that.
//
// Machines that must be together, see LaunchRequest.Together, are put near each other so:
//
//	                     Fleet              Reservation          LaunchInstances
//	placement group      Muster's, for the  Muster's, for the    the group's own
//	                     launch             launch
//	at most of those     500 in an account and region            -
//	joining what is      that placement     that placement       by chance
//	there                group              group
//	known to be near     once nodes have    before machines      once nodes have
//	                     labels             exist, where AWS     labels
//	                                        reports the domain
//
// Muster makes a cluster placement group for each launch, of the name muster-<hash of the cluster's UID, the token and the
// zone>, unless the group or its launch template says where its machines are, the type cannot be in one, or the machines come
// from a reservation that was bought. It is deleted five minutes after the last launch, machine or reservation that needed it,
// and one that another process has left behind after a quarter of an hour. Where none can be made the machines are launched without, and a
// warning of the group says why. A reservation is made in the placement group; if the machines must join others and AWS reports
// that it is elsewhere, it is cancelled before any machine exists.
//
// P2 is how long after a launch was given up AWS bills a machine of it: a call may take a
// minute, lists may lag by another, the next one is at most a minute away (five seconds while
// something is under way), and calls that fail are repeated. A reservation ends at its
// end date, spec.joinTimeout after it was made, and AWS cancels it within an hour
// after that.
//
// A termination is over once lists show it: until then it is repeated, except for machines that a
// lifecycle hook holds: those are Terminated for Muster, though billed, and Kept where their group
// retains them after it. Machines that AWS or a person has stopped are reported as ended, are
// reported again if they are started again, and are terminated after ten minutes unless they are many.
//
// Each package below does a part of the work, and imports only those before it in this list: api makes the calls, prices knows what
// machines cost, asg reads Auto Scaling groups, inventory lists what there is, placement puts machines near each other, discover finds
// groups, terminate ends machines, launch makes them. Beside those, advice and permissions answer one question each. Provider wires them.
//
// All calls are those of package api, and only those that make machines refuse a launch. Machines beside their group are listed and
// terminated without Auto Scaling, whose part of a list is a scope of its own.
//
// All that Muster makes bears the UID of the cluster, and Auto Scaling groups are claimed for it,
// since clusters of one account may have one name.
//
// Machines count against MaxSize of their Auto Scaling group, whether they stand in it
// or beside it. What AWS says of its own is taken for news at most: which machines
// there are is listed, and what a call has just returned is remembered until it is.
package aws
