package rules

import (
	"encoding/json"
	"fmt"
	"time"
)

// Course is a plan that a rule is under, and how far it has come.
type Course struct {
	Plan Plan `json:"plan"`
	// By is who started it.
	By       string `json:"by"`
	Verified bool   `json:"verified,omitempty"`
	// Begun is the revision that started it.
	Begun int64 `json:"begun"`
	Step  int   `json:"step"` // from 0
	// Since is when the step began, and with it what counts as its evidence. A step in shadow begins with the version's own
	// shadow.
	Since time.Time `json:"since"` // UTC, microseconds
	// Revision is the one that the fleet must have before the step is left: it began the step.
	Revision int64 `json:"revision"`
	// Tripped is why the plan paused the rule by itself; "" when it did not.
	Tripped string `json:"tripped,omitempty"`
}

// At is the step it is in.
func (c *Course) At() PlanStep { return c.Plan.Steps[c.Step] }

// Last reports that it is in the plan's last step, and has nowhere to go.
func (c *Course) Last() bool { return c.Step == len(c.Plan.Steps)-1 }

// Running reports that there is a course, and that it has somewhere to go.
func (c *Course) Running() bool { return c != nil && !c.Last() }

// String is "step 2 of 5".
func (c *Course) String() string { return fmt.Sprintf("step %d of %d", c.Step+1, len(c.Plan.Steps)) }

// EncodeCourse returns the JSON in which a course is stored; "" for none.
func EncodeCourse(c *Course) (string, error) {
	if c == nil {
		return "", nil
	}
	b, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode a plan: %w", err)
	}
	return string(b), nil
}

// DecodeCourse reads what EncodeCourse wrote. A field it does not know is an error.
func DecodeCourse(stored string) (*Course, error) {
	if stored == "" {
		return nil, nil //nolint:nilnil // no plan is no course
	}
	var c Course
	if err := unmarshalStrict([]byte(stored), &c); err != nil {
		return nil, fmt.Errorf("decode a plan: %w: %w", ErrInvalid, err)
	}
	if c.Step < 0 || c.Step >= len(c.Plan.Steps) {
		return nil, fmt.Errorf("decode a plan: %w: it is in step %d of %d", ErrInvalid, c.Step+1, len(c.Plan.Steps))
	}
	return &c, nil
}
