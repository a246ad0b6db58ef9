package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Plan is how a candidate is promoted by itself: step by step, each held for a time, and left only on evidence.
type Plan struct {
	Steps  []PlanStep
	Gates  Gates
	OnTrip OnTrip
}

// PlanStep is a percentage (0: shadow), and how long the candidate is watched there at least. The last step has no such
// time: the plan ends there.
type PlanStep struct {
	Percent Percent
	Hold    time.Duration
}

// Gates are what evidence is held to. A ratio that is nil is not looked at.
type Gates struct {
	// MaxWouldRefuse bounds the share of the requests that the candidate judged or decided which it would refuse, where no
	// other rule refuses as well, or does.
	MaxWouldRefuse *Percent
	// MaxDelta bounds how many more of them the candidate refuses than the stable: newly refused less no longer refused.
	MaxDelta *Percent
	// MinRequests is how many it must have judged in the step before anything is concluded; 0: DefaultMinRequests.
	MinRequests int64
}

// DefaultMinRequests is enough to tell 2 % from 10 %: of 100 requests none refused, the ratio is surely below 4 %.
const DefaultMinRequests = 100

// OnTrip is what a plan does when a gate trips.
type OnTrip string

// The values.
const (
	TripPauses    OnTrip = "pause" // the candidate stays where it is; the default
	TripRollsBack OnTrip = "rollback"
)

// Bounds of a plan.
const (
	maxPlanSteps = 100
	// MaxPlanHold is the longest a step is held: minutes are kept for eight days.
	MaxPlanHold = 7 * 24 * time.Hour
)

// ParsePlan reads the steps of a plan: "shadow 1h, 1% 15m, 10% 15m, 50% 30m, 100%", or "+30% 15m, max 100%" for 30, 60,
// 90 and 100 %. The error is an [ErrInvalid].
func ParsePlan(text string) ([]PlanStep, error) {
	p := planParser{}
	for item := range strings.SplitSeq(text, ",") {
		if err := p.item(strings.Fields(item)); err != nil {
			return nil, fmt.Errorf("%w: plan %q: %w", ErrInvalid, text, err)
		}
	}
	if err := p.end(); err != nil {
		return nil, fmt.Errorf("%w: plan %q: %w", ErrInvalid, text, err)
	}
	return p.steps, nil
}

type planParser struct {
	steps []PlanStep
	rise  PlanStep // what each further step adds; zero: none
	most  Percent  // where rising ends; 0: nobody said
}

// item reads what stands between two commas: "shadow 1h", "10% 15m", "+30% 15m" and "max 50%", the last two also in one.
func (p *planParser) item(words []string) error {
	switch {
	case len(words) == 0:
		return fmt.Errorf("a step is empty: write %s", stepForms)
	case p.most > 0:
		return fmt.Errorf("%q follows max, which ends the plan", strings.Join(words, " "))
	case words[0] == "max" && len(words) == 2 && p.rise != PlanStep{}:
		return p.max(words[1])
	case p.rise != PlanStep{}:
		return fmt.Errorf("%q follows a rise: only max PERCENT may", strings.Join(words, " "))
	case strings.HasPrefix(words[0], "+"):
		return p.rising(words)
	case len(words) > 2:
		return fmt.Errorf("%q is not %s", strings.Join(words, " "), stepForms)
	}
	step, err := parseStep(words)
	if err == nil {
		p.steps = append(p.steps, step)
	}
	return err
}

const stepForms = `a step, such as "shadow 1h", "10% 15m", "+30% 15m, max 100%" or, at the end, "100%"`

func parseStep(words []string) (step PlanStep, err error) {
	if words[0] != string(StageShadow) {
		if step.Percent, err = ParsePercent(words[0]); err != nil {
			return step, err
		}
		if step.Percent == 0 {
			return step, fmt.Errorf("0%% is called %s", StageShadow)
		}
	}
	if len(words) == 2 {
		step.Hold, err = parseHold(words[1])
	}
	return step, err
}

func (p *planParser) rising(words []string) (err error) {
	if len(words) != 2 && (len(words) != 4 || words[2] != "max") || words[0] == "+"+string(StageShadow) {
		return fmt.Errorf("%q is not a rise, such as +30%% 15m", strings.Join(words, " "))
	}
	if p.rise, err = parseStep([]string{words[0][1:], words[1]}); err != nil || len(words) == 2 {
		return err
	}
	return p.max(words[3])
}

func (p *planParser) max(word string) (err error) {
	if p.most, err = ParsePercent(word); err == nil && p.most == 0 {
		return errors.New("max is 0%")
	}
	return err
}

// end lays the rise out and checks the whole.
func (p *planParser) end() error {
	if p.rise.Percent > 0 {
		if p.most == 0 {
			p.most = AllKeys
		}
		at := Percent(0)
		if n := len(p.steps); n > 0 {
			at = p.steps[n-1].Percent
		}
		if at >= p.most {
			return fmt.Errorf("max %s is not above %s, from where it rises", p.most, at)
		}
		for at < p.most && len(p.steps) <= maxPlanSteps {
			at = min(at+p.rise.Percent, p.most)
			p.steps = append(p.steps, PlanStep{Percent: at, Hold: p.rise.Hold})
		}
		p.steps[len(p.steps)-1].Hold = 0
	}
	return checkSteps(p.steps)
}

func checkSteps(steps []PlanStep) error {
	last := len(steps) - 1
	if len(steps) > maxPlanSteps {
		return fmt.Errorf("it has more than %d steps", maxPlanSteps)
	}
	for i, step := range steps {
		switch {
		case i > 0 && step.Percent <= steps[i-1].Percent:
			return fmt.Errorf("%s follows %s: a plan only goes up", step.where(), steps[i-1].where())
		case i < last && step.Hold == 0:
			return fmt.Errorf("%s says not how long: every step but the last does, such as %s 15m", step.where(), step.where())
		case i == last && step.Percent == 0:
			return fmt.Errorf("it ends in %s, where the candidate is already", StageShadow)
		case i == last && step.Hold != 0:
			return fmt.Errorf("%s is the last step, and says how long: the plan ends there; write %s", step, step.where())
		}
	}
	return nil
}

// parseHold reads "15m", "1h30m" or "2d".
func parseHold(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil {
		return 0, fmt.Errorf("%q is no time, such as 30s, 15m, 1h30m or 2d", text)
	}
	if d < time.Second || d > MaxPlanHold || d%time.Second != 0 {
		return 0, fmt.Errorf("%q: a step is held for whole seconds, from 1s to 7d", text)
	}
	return d, nil
}

func (s PlanStep) where() string {
	if s.Percent == 0 {
		return string(StageShadow)
	}
	return s.Percent.String()
}

// String is the step as [ParsePlan] reads it.
func (s PlanStep) String() string {
	if s.Hold == 0 {
		return s.where()
	}
	return s.where() + " " + HoldText(s.Hold)
}

// HoldText is a duration in whole seconds as short as it can be said: "15m", "1h30m", "2d".
func HoldText(d time.Duration) string {
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	text := d.Truncate(time.Second).String() // 1h30m0s, 15m0s, 30s
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// StepsText is the steps as [ParsePlan] reads them, a rise laid out.
func (p *Plan) StepsText() string {
	list := make([]string, len(p.Steps))
	for i, s := range p.Steps {
		list[i] = s.String()
	}
	return strings.Join(list, ", ")
}

// ParseGates reads gates, each such as "maxWouldRefuse 2%", "maxDelta 0.5%" or "minRequests 500"; several may stand in one
// text, with commas between. The error is an [ErrInvalid].
func ParseGates(texts ...string) (Gates, error) {
	var g Gates
	for item := range strings.SplitSeq(strings.Join(texts, ","), ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		if err := g.parse(strings.Fields(item)); err != nil {
			return Gates{}, fmt.Errorf("%w: gate %q: %w", ErrInvalid, strings.TrimSpace(item), err)
		}
	}
	return g, nil
}

// The names of the gates.
const (
	GateWouldRefuse = "maxWouldRefuse"
	GateDelta       = "maxDelta"
	GateMinRequests = "minRequests"
)

func (g *Gates) parse(words []string) (err error) {
	if len(words) != 2 {
		return fmt.Errorf("write %s 2%%, %s 0.5%% or %s %d", GateWouldRefuse, GateDelta, GateMinRequests, DefaultMinRequests)
	}
	switch name := words[0]; name {
	case GateWouldRefuse, GateDelta:
		into := &g.MaxWouldRefuse
		if name == GateDelta {
			into = &g.MaxDelta
		}
		if *into != nil {
			return fmt.Errorf("%s is given twice", name)
		}
		var p Percent
		if p, err = ParsePercent(words[1]); err == nil && p == 0 && name == GateWouldRefuse {
			return errors.New("0% is never surely kept, however many requests there are: write a bound above it, such as 0.1%")
		}
		*into = &p
		return err
	case GateMinRequests:
		if g.MinRequests != 0 {
			return fmt.Errorf("%s is given twice", name)
		}
		n, err := strconv.ParseInt(strings.ReplaceAll(words[1], "_", ""), 10, 64)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a number from 1 on: without requests nothing is known", words[1])
		}
		g.MinRequests = n
		return nil
	}
	return fmt.Errorf("%q is none: there are %s, %s and %s", words[0], GateWouldRefuse, GateDelta, GateMinRequests)
}

// Minimum is MinRequests, or what stands for 0.
func (g *Gates) Minimum() int64 {
	if g.MinRequests > 0 {
		return g.MinRequests
	}
	return DefaultMinRequests
}

// Texts are the gates as [ParseGates] reads them.
func (g *Gates) Texts() []string {
	var list []string
	if g.MaxWouldRefuse != nil {
		list = append(list, GateWouldRefuse+" "+g.MaxWouldRefuse.String())
	}
	if g.MaxDelta != nil {
		list = append(list, GateDelta+" "+g.MaxDelta.String())
	}
	if g.MinRequests > 0 {
		list = append(list, fmt.Sprintf("%s %d", GateMinRequests, g.MinRequests))
	}
	return list
}

// ParseOnTrip reads "pause" or "rollback"; "" is pause.
func ParseOnTrip(text string) (OnTrip, error) {
	switch o := OnTrip(text); o {
	case "":
		return TripPauses, nil
	case TripPauses, TripRollsBack:
		return o, nil
	}
	return "", fmt.Errorf("%w: %q is nothing to do when a gate trips: use %s or %s", ErrInvalid, text, TripPauses, TripRollsBack)
}

// NewPlan reads the three texts of a plan.
func NewPlan(steps string, gates []string, onTrip string) (p Plan, err error) {
	if p.Steps, err = ParsePlan(steps); err != nil {
		return Plan{}, err
	}
	if p.Gates, err = ParseGates(gates...); err != nil {
		return Plan{}, err
	}
	if p.OnTrip, err = ParseOnTrip(onTrip); err != nil {
		return Plan{}, err
	}
	return p, nil
}

// String is the whole plan in words: "1% 15m, 100%; gates maxWouldRefuse 2%; on a tripped gate pause".
func (p *Plan) String() string {
	text := p.StepsText()
	if gates := p.Gates.Texts(); len(gates) > 0 {
		text += "; gates " + strings.Join(gates, ", ")
	}
	return text + "; on a tripped gate " + string(p.OnTrip)
}

type planJSON struct {
	Steps  string   `json:"steps"`
	Gates  []string `json:"gates,omitempty"`
	OnTrip OnTrip   `json:"onTrip"`
}

// MarshalJSON writes a plan as its texts.
func (p Plan) MarshalJSON() ([]byte, error) {
	return json.Marshal(planJSON{p.StepsText(), p.Gates.Texts(), p.OnTrip})
}

// UnmarshalJSON reads what MarshalJSON wrote. A field it does not know is an error.
func (p *Plan) UnmarshalJSON(b []byte) error {
	var in planJSON
	if err := unmarshalStrict(b, &in); err != nil {
		return err
	}
	var err error
	*p, err = NewPlan(in.Steps, in.Gates, string(in.OnTrip))
	return err
}
