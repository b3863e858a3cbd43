// Of the comparison tab: what the step as it stands and another graph do differently.
#pragma once

namespace gradloom {

struct Ui;

// Which of the two is shown: times, or this. True: this.
bool difference_switch(Ui& ui);
void draw_difference(Ui& ui);

}  // namespace gradloom
