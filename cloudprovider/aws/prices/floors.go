package prices

// floors are prices for as long as AWS's own are not known, in thousandths of a USD
// per hour: Linux in us-east-1, on demand of 6 July 2026; of Spot the highest that was
// seen in a zone with machines to spare. 0 is for what was not seen.
var floors = map[string]struct{ onDemand, spot int64 }{
	"p4d.24xlarge":     {21958, 13990},
	"p4de.24xlarge":    {27447, 20130},
	"p5.4xlarge":       {6880, 0},
	"p5.48xlarge":      {55040, 18730},
	"p5e.48xlarge":     {0, 15480},
	"p5en.48xlarge":    {63296, 20780},
	"p6-b200.48xlarge": {113933, 24400},
	"p6-b300.48xlarge": {142416, 15980},
	"g5.xlarge":        {1006, 0},
	"g5.12xlarge":      {5672, 0},
	"g5.48xlarge":      {16288, 0},
	"g6.xlarge":        {805, 0},
	"g6.12xlarge":      {4602, 0},
	"g6.48xlarge":      {13350, 0},
	"g6e.xlarge":       {1861, 0},
	"g6e.2xlarge":      {2242, 0},
	"g6e.12xlarge":     {10493, 0},
	"g6e.48xlarge":     {30131, 0},
	"g7e.2xlarge":      {3363, 0},
	"g7e.48xlarge":     {33144, 0},
}
