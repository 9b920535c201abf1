// Copyright 2026 spec_vlm_nav maintainers
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

#ifndef SPEC_VLM_NAV_NAV2__NAVIGATE_INSTRUCTION_ACTION_HPP_
#define SPEC_VLM_NAV_NAV2__NAVIGATE_INSTRUCTION_ACTION_HPP_

#include <cstdint>
#include <string>

#include "nav2_behavior_tree/bt_action_node.hpp"
#include "spec_vlm_nav_interfaces/action/navigate_instruction.hpp"

namespace spec_vlm_nav_nav2
{

/**
 * @brief A Behavior Tree node that makes the robot carry out an instruction
 *
 * It returns SUCCESS if the model says that it is done, else FAILURE, also if a stop or another goal
 * canceled the instruction. Halting the node cancels the goal; the server acknowledges the cancel
 * after the robot stands.
 */
class NavigateInstructionAction
  : public nav2_behavior_tree::BtActionNode<spec_vlm_nav_interfaces::action::NavigateInstruction>
{
  using Action = spec_vlm_nav_interfaces::action::NavigateInstruction;

public:
  NavigateInstructionAction(
    const std::string & xml_tag_name,
    const std::string & action_name,
    const BT::NodeConfiguration & conf);

  /**
   * @brief Ports: those of the action's goal and result
   *
   * error_code_id and error_msg are the names that Nav2 itself uses.
   */
  static BT::PortsList providedPorts()
  {
    return providedBasicPorts(
      {
        BT::InputPort<std::string>("instruction", "What to do, in words"),
        BT::InputPort<double>(
          "time_allowance", 0.0, "Seconds it may take; 0: max_duration_s of vlm_nav_node"),
        BT::InputPort<std::string>(
          "success_hint", "", "Words that the last reasoning must hold for hint_met"),
        BT::OutputPort<uint16_t>("error_code_id", "error_code of NavigateInstruction"),
        BT::OutputPort<std::string>("error_msg", "Why it ended, in one line; empty when done"),
        BT::OutputPort<bool>("hint_met", "Whether the last reasoning held the hint's words"),
        BT::OutputPort<double>("distance_m", "Metres travelled, by odometry")
      });
  }

  void on_tick() override;
  BT::NodeStatus on_success() override;
  BT::NodeStatus on_aborted() override;
  BT::NodeStatus on_cancelled() override;

  // Kilted and later call this if the server does not answer. The base class of earlier releases has
  // no such function, so it must not be marked `override`.
  void on_timeout();

private:
  void tell_result();
  void tell(uint16_t code, const std::string & message);
};

}  // namespace spec_vlm_nav_nav2

#endif  // SPEC_VLM_NAV_NAV2__NAVIGATE_INSTRUCTION_ACTION_HPP_
