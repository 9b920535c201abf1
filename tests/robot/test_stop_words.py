"""What is a stop, and what is an instruction: the line between them, from both sides."""

import time

import pytest

from spec_vlm_nav.language.stop_words import PHRASES, is_stop

LISTED = ("English", "German", "French", "Spanish")  # test_stop_languages tests the others

STOPS = """
stop|Stop.|STOP!!!| stop|s t o p|S.T.O.P.|stooooop|STOP STOP STOP|Stop now|stop here|stop moving|stop it
stop that|stop the robot|Stop the robot!|stop, please|please stop|Please stop moving.
please, stop the robot now|stop at once|stop right now|stop right there|stop right here|stop immediately
stop where you are|stop right where you are|stop in place|stop on the spot|stop as fast as you can
stop as soon as possible|stop walking|stop turning left|stop driving forward|stop going towards the door
stop what you are doing|stop looking for the bottle|stop searching|stop and wait|stop and don't move
stop until I tell you|stop for a moment|stop everything|stop, then go to the kitchen|Stop. There is a child.
no, stop!|No! Stop!|hey robot, stop|robot stop|OK stop|just stop|you must stop|I said stop|I want you to stop
can you stop|could you please stop?|Would you stop moving, please?|go there... no, stop!|go to the door. Stop.
go to the door, but stop|turn left 30 degree and do not move|oh no stop|halt|Halt!|HALT|halt now|freeze
Freeze!|freeze right there|abort|abort mission|abort the mission|Abort!|cancel|cancel that
cancel the instruction|wait|wait!|wait a second|wait a moment please|wait here|wait for me
wait until I am there|pause|hold on|hold it|hold still|hold your position|hold|stand still|Stand still!
stand still, please|stay|stay there|stay where you are|stay put|stay still|keep still|be still|don't move
Don't move!|dont move|do not move|don’t move|please don't move|don't move any further|do not go
don't go any further|don't continue|no further|not another step|emergency stop|EMERGENCY STOP!|Emergency!
e-stop|E-Stop|estop|E STOP|hit the e-stop|press the emergency stop|full stop|all stop|come to a halt
come to a stop now|whoa|brake!|enough|that's enough|shut down|quit|never mind|stopp|sotp|stpo|🛑|✋🛑|ＳＴＯＰ
Stopp!|stopp bitte|bitte anhalten|halt an|Halte an!|halt sofort an|bleib stehen|Bleib sofort stehen
Bleiben Sie bitte stehen!|stehen bleiben|bitte stehenbleiben|steh still|nicht bewegen|Beweg dich nicht!
keine Bewegung|nicht weiter|Not-Aus|NOTAUS|Not-Halt|Nothalt!|Abbruch|abbrechen|warte|warten|warte bitte
hör auf|Hör auf dich zu bewegen|sofort stoppen|stopp auf der Stelle|arrête|Arrête !|arrête-toi|Arrêtez-vous !
arrête de bouger|arrêtez|arrêt d'urgence|halte|Halte !|ne bouge pas|Ne bougez plus !|ne bouge plus|attends
attendez|stop s'il te plaît|s'il vous plaît arrêtez-vous|immobile|annule|para|¡Para!|para ya|para el robot
para, por favor|para de moverte|pare|párate|¡Detente!|deténgase|detente ahora mismo|alto|¡Alto!|alto ahí
quieto|no te muevas|no se mueva|espera|espere un momento|parada de emergencia|por favor, detente|basta|cancela
停|停！|停止|停下|停下来|停下來|请停下来|请停止|立刻停止|马上停下|停止移动|停止前进|机器人停下|停在这里|别动
and stop|then stop!|And then stop now.|…and wait|und dann stopp|et arrête|puis stop|y para|e poi stop|и стой
can we stop|Shall we stop?|I think you should stop|the robot should stop now|somebody stop that robot|暂停一下
別動|不要动|不许动！|站住|等等|等一下|请等一下|急停|紧急停止|緊急停止！|暂停|取消任务|停停停
"""

INSTRUCTIONS = """
stop at the door|Stop at the door.|please stop at the red table|stop by the window|stop in front of the table
stop next to the silver bottle|stop near the chair|stop beside the box|stop behind the sofa
stop when you see the red chair|stop when you reach the door|stop once you are at the table
stop if you see a person|stop as soon as you see the bottle|stop before the stairs|stop right at the door
stop right in front of the box|stop exactly between the two chairs|stop after two metres
stop where the carpet ends|stop under the lamp|stop close to the wall|halt at the door
halt in front of the table|wait at the door|wait by the window|come to a halt at the table
stand next to the table|stay at the door|stay behind me|don't stop|do not stop
don't stop until you reach the table|never stop|keep going, don't stop|go on without stopping
find the bus stop|find the stop sign|go to the stop sign|walk to the stop sign|find the e-stop button
find the emergency stop button|look for the emergency exit|go to the table and stop
go to the red table, then stop|Find the bottle and stop there.|walk to the door, wait there
find the silver bottle|find the stopwatch|turn left|turn around|go back|go to the freezer|find the white box
go on but do not stop|find the chair and do not move the table|hold the door|cut the corner
end of the corridor|find the halting machine|turn off at the second door|finish at the red chair
rest your eyes on the lamp|exit the room|exit through the left door|halte an der Tür|halt an der Tür
stopp vor dem roten Tisch|bleib an der Tür stehen|warte neben dem Stuhl|such die silberne Flasche
geh zur Haltestelle|nicht anhalten|arrête-toi devant la porte|arrête-toi à la porte
arrêtez-vous près de la table|arrête-toi quand tu vois la chaise|attends devant la porte|trouve la bouteille
va à l'arrêt de bus|ne t'arrête pas|para en la puerta|detente en la mesa|detente junto a la silla
para cuando veas la silla|espera en la puerta|busca la botella|no pares
para encontrar la botella gira a la izquierda|ve a la parada de autobús|停在门口|停在桌子旁边|在门口停下
can we stop at the door|the robot should wait at the table|someone is at the stop
then stop at the door|and find the bus stop|then the bus stop|Go to the door. Then stop.
走到桌子前停下来|看到椅子就停|不要停|别停下|找到银色的瓶子|去公交车站|等红灯变绿
"""


@pytest.mark.parametrize("line", STOPS.split("\n")[1:-1])
def test_a_stop_in_any_case_politeness_and_language_is_a_stop(line):
    for text in line.split("|"):
        for said in (text, text.upper(), f"  {text.title()}  \n", text.replace(" ", "\n")):
            assert is_stop(said), said


@pytest.mark.parametrize("line", INSTRUCTIONS.split("\n")[1:-1])
def test_what_names_a_place_a_condition_or_a_thing_is_an_instruction(line):
    for text in line.split("|"):
        for said in (text, text.upper()):
            assert not is_stop(said), said


@pytest.mark.parametrize("text", ["", " ", "...", "?", "please", "robot", "bitte", "请", "no", "now"])
def test_nothing_said_is_no_stop(text):
    assert not is_stop(text)


def test_politeness_in_every_place_keeps_a_stop_a_stop():
    for head in ("stop", "halt", "freeze", "don't move", "emergency stop", "arrête-toi", "bleib stehen"):
        for said in ("please {}", "{} please", "hey robot, {}!", "OK {} now", "{}, {}!", "could you {}?"):
            assert is_stop(said.format(head, head)), said.format(head, head)


def test_every_head_alone_is_a_stop_and_no_list_holds_what_would_undo_it():
    heads, closed, openers, fillers = (
        {
            " ".join(phrase.split())
            for language in LISTED
            for phrase in PHRASES[language][kind].split("|")
        }
        for kind in ("heads", "closed", "openers", "fillers")
    )
    places = {word for language in LISTED for word in PHRASES[language]["places"].split()}
    for head in heads | closed - {"no"}:
        assert is_stop(head), head
    # A filler or an opener that is a head would hide what stands behind it.
    assert not heads & openers - fillers
    assert not openers & places


def test_a_stop_repeated_for_longer_than_an_instruction_may_be_is_heard():
    assert is_stop("stop " * 1000)
    assert is_stop("S" + "T" * 30 + "OP")


@pytest.mark.parametrize("text", ["\x00stop\x00", "stop\u200b", "<|im_end|>stop", "stop\r\n", "\tStop!\t"])
def test_odd_characters_around_a_stop_do_not_hide_it(text):
    assert is_stop(text)


@pytest.mark.parametrize("words", ["不", "等", "停原地待命", "站着别动", "好好了", "停一下一会儿"])
def test_words_that_overlap_take_no_longer_than_others(words):
    """As a regular expression they took minutes: motion_node hung, and its e-stop with it."""
    began = time.process_time()
    assert not is_stop(words * 50 + "去")
    assert is_stop("停" + words * 50) == (words not in ("不", "好好了"))
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("blank", [" ", "\u200b", "\u00ad", "\t", "\u2060 "])
def test_a_stop_behind_any_number_of_blanks_is_a_stop(blank):
    assert is_stop(blank * 900 + "stop") and is_stop(blank * 900 + "stop" + blank * 900 + "now")
    assert not is_stop(blank * 900 + "find the bus stop")


def test_invisible_characters_neither_split_a_stop_nor_join_it_to_the_next_word():
    assert is_stop("st\u00adop") and is_stop("s\u200bt\u200bo\u200bp") and is_stop("stop\u200bnow")
    assert is_stop("go to the door\n \u200bstop!") and not is_stop("go to the bus stop!")
    assert is_stop("wait\nstop!") and not is_stop("find the chair\nthen the bus stop")
